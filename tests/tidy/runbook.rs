//! The runbook has every log line at WARN and ERROR, every alert, and no metric that does not
//! exist.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A line of the log: its level, and its text with `...` for what differs from line to line.
type Line = (String, String);

/// Lines of the sources without a row, and rows without a line.
pub(crate) fn violations<N: AsRef<str>, T: AsRef<str>>(
    sources: &[(N, T)],
    runbook: &str,
) -> Vec<String> {
    let rows = rows(runbook);
    let mut known = BTreeSet::new();
    let mut violations = Vec::new();
    for (name, text) in sources {
        let mut lines = Vec::new();
        read(text.as_ref().parse().expect("Rust"), &mut lines);
        for (level, text) in lines {
            let described = |row: &&Line| row.0 == level && begins_with(&text, &row.1);
            let found: Vec<_> = rows.iter().filter(described).collect();
            if found.is_empty() {
                let name = name.as_ref();
                violations.push(format!(
                    "{name}: the runbook has no row for {level} `{text}`"
                ));
            }
            known.extend(found);
        }
    }
    for row @ (level, text) in &rows {
        if !known.contains(row) {
            violations.push(format!(
                "the runbook has a row for no line: {level} `{text}`"
            ));
        }
    }
    violations
}

/// A row has a line's text or its beginning, of two words at least.
fn begins_with(line: &str, row: &str) -> bool {
    line == row || (line.starts_with(row) && row.split_whitespace().count() > 1)
}

/// Alerts without a chapter or a link to it, chapters without an alert, metrics that `table` lacks.
pub(crate) fn alert_violations(alerts: &str, runbook: &str, table: &str) -> Vec<String> {
    let after = |text: &str, mark: &str| -> BTreeSet<String> {
        let found = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(mark));
        found.map(|rest| rest.trim().to_owned()).collect()
    };
    let names = after(alerts, "- alert: ");
    let chapters = after(runbook, "## Leasehold");
    let chapters: BTreeSet<_> = chapters
        .iter()
        .map(|name| format!("Leasehold{name}"))
        .collect();
    let mut violations: Vec<_> = (names.symmetric_difference(&chapters))
        .map(|name| format!("{name} is an alert or a chapter of the runbook, and not both"))
        .collect();
    let links = after(alerts, "runbook_url: ");
    for name in &names {
        let end = format!("/docs/runbook/index.html#{}", name.to_lowercase());
        if !links.iter().any(|link| link.ends_with(&end)) {
            violations.push(format!("{name} has no runbook_url that ends with {end}"));
        }
    }
    let known = metrics(table);
    for name in metrics(alerts).union(&metrics(runbook)) {
        let plain = ["_sum", "_count", "_bucket"];
        let plain = plain.iter().find_map(|end| name.strip_suffix(end));
        if !known.contains(plain.unwrap_or(name)) {
            violations.push(format!("there is no metric {name}"));
        }
    }
    violations
}

fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let ours = words.filter(|word| word.starts_with("leasehold_"));
    ours.map(str::to_owned).collect()
}

/// `| WARN `the text` | ...`.
fn rows(runbook: &str) -> Vec<Line> {
    let rows = runbook.lines().filter_map(|line| {
        let (level, rest) = line.strip_prefix("| ")?.split_once(" `")?;
        let (text, _) = rest.split_once('`')?;
        ["WARN", "ERROR"]
            .contains(&level)
            .then(|| (level.to_owned(), text.to_owned()))
    });
    rows.collect()
}

/// `warn!(...)`, `error!(...)`, and `line!(.., WARN, ..)` of the access log.
fn read(tokens: TokenStream, lines: &mut Vec<Line>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        read(group.stream(), lines);
        let called = match &tokens[..index] {
            [.., TokenTree::Ident(name), TokenTree::Punct(mark)] if mark.as_char() == '!' => {
                name.to_string()
            }
            _ => continue,
        };
        let inside: Vec<_> = group.stream().into_iter().collect();
        let has = |level: &str| inside.iter().any(|token| token.to_string() == level);
        let level = match called.as_str() {
            "warn" => "WARN",
            "error" => "ERROR",
            "line" if has("WARN") => "WARN",
            "line" if has("ERROR") => "ERROR",
            _ => continue,
        };
        if group.delimiter() == Delimiter::Parenthesis {
            let text = text_of(&inside).unwrap_or_default();
            lines.push((level.to_owned(), text));
        }
    }
}

/// The text of a line: its literal that is no value of a field.
fn text_of(inside: &[TokenTree]) -> Option<String> {
    let mut texts = inside.iter().enumerate().filter_map(|(index, token)| {
        let before = index
            .checked_sub(1)
            .map(|before| inside[before].to_string());
        let is_value = before.is_some_and(|before| ["=", ":", "%", "?"].contains(&&*before));
        let TokenTree::Literal(literal) = token else {
            return None;
        };
        let text: syn::LitStr = syn::parse_str(&literal.to_string()).ok()?;
        (!is_value).then(|| text.value())
    });
    let text = texts.next_back()?;
    let mut parts = text.split('{');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        plain.push_str("...");
        plain.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    Some(plain)
}
