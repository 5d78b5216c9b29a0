//! The form of the rendered docs: an example fits its column, and every column of a table has a
//! name.

/// The most characters of a line of an example: more would be cut off by a page of docs.rs.
const COLUMNS: usize = 76;

/// `sources` are files of Rust and of Markdown.
pub(crate) fn violations<N: AsRef<str>, T: AsRef<str>>(sources: &[(N, T)]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, text) in sources {
        let name = name.as_ref();
        let mut is_example = false;
        let mut before = "";
        for (number, line) in (1..).zip(text.as_ref().lines()) {
            let Some(line) = doc_text(name, line) else {
                (is_example, before) = (false, "");
                continue;
            };
            if line.trim_start().starts_with("```") {
                is_example = !is_example;
            } else if is_example && !is_hidden(line) && line.chars().count() > COLUMNS {
                violations.push(format!(
                    "{name}:{number}: an example over {COLUMNS} columns"
                ));
            } else if !is_example && line.starts_with("|---") && has_nameless_column(before) {
                violations.push(format!("{name}:{number}: a table with a nameless column"));
            }
            before = line;
        }
    }
    violations
}

/// The line as the docs show it; none for a line of code.
fn doc_text<'a>(name: &str, line: &'a str) -> Option<&'a str> {
    if name.ends_with(".md") {
        return Some(line);
    }
    let line = line.trim_start();
    let text = (line.strip_prefix("///")).or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// A line that is compiled and not shown.
fn is_hidden(line: &str) -> bool {
    let line = line.trim_start();
    line == "#" || line.starts_with("# ")
}

fn has_nameless_column(header: &str) -> bool {
    let names = header.trim().trim_matches('|').split('|');
    names.into_iter().any(|name| name.trim().is_empty())
}
