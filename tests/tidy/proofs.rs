//! The models of `tests/proof/smt/`: each of their rules names a line that does it, and a mutant of
//! that line.

/// A rule of a model.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// Files, each with a part of a line.
    lines: Vec<(String, String)>,
    mutants: Vec<String>,
    /// Why no line does it.
    none: Option<String>,
}

/// The rules of a model. They are in its table `RULES`:
///
/// ```text
/// name: The rule in words.
///     src/lease/words.rs: a part of a line there
///     mutant: lease-renewal-stores
/// ```
///
/// A rule that no line does has `none:` and the reason.
pub(crate) fn rules(model: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let table = model.lines().skip_while(|line| *line != "RULES = \"\"\"");
    for line in table.skip(1).take_while(|line| *line != "\"\"\"") {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let (key, value) = (key.to_owned(), value.to_owned());
        match (key.strip_prefix("    "), rules.last_mut()) {
            (Some("mutant"), Some(rule)) => rule.mutants.push(value),
            (Some("none"), Some(rule)) => rule.none = Some(value),
            (Some(path), Some(rule)) => rule.lines.push((path.to_owned(), value)),
            _ => rules.push(Rule {
                name: key,
                lines: Vec::new(),
                mutants: Vec::new(),
                none: None,
            }),
        }
    }
    rules
}

/// `read` gives the text of a file of the repository, or `None`.
pub(crate) fn violations(model: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut violations = Vec::new();
    for rule in rules(model) {
        let name = &rule.name;
        let has_both = !rule.lines.is_empty() && !rule.mutants.is_empty();
        if has_both == rule.none.is_some() {
            violations.push(format!("{name}: no line, or no mutant"));
        }
        for (path, line) in &rule.lines {
            let is_there = |text: String| dense(&text).contains(&dense(line));
            if line.is_empty() || !read(path).is_some_and(is_there) {
                violations.push(format!("{name}: {path} has no `{line}`"));
            }
        }
        for mutant in &rule.mutants {
            let Some(text) = read(&format!("tests/mutants/{mutant}.mutant")) else {
                violations.push(format!("{name}: there is no mutant {mutant}"));
                continue;
            };
            let changes = |line: &str| {
                let mut blocks = found_by(&text);
                blocks.any(|block| block.contains(line) || line.contains(&block))
            };
            if !rule.lines.iter().any(|(_, line)| changes(&dense(line))) {
                violations.push(format!("{name}: {mutant} changes none of its lines"));
            }
        }
    }
    violations
}

/// The texts that a mutant replaces.
fn found_by(mutant: &str) -> impl Iterator<Item = String> {
    let blocks = mutant.split("<<<<<<<\n").skip(1);
    blocks.filter_map(|block| Some(dense(block.split_once("=======\n")?.0)))
}

/// White space does not count, as for mutants.
fn dense(text: &str) -> String {
    text.split_whitespace().collect()
}
