//! The form of a file: short, opened by prose, finished.

use crate::paths::find;
use crate::tokens::macros;

/// The most lines of a file; 120 are normal. Docs and what is compiled for tests alone do not
/// count.
const LINES: usize = 500;

/// The most columns of a line of prose in a comment. A row of a table and a line of a block between
/// fences can't be broken.
const COLUMNS: usize = 100;

/// Macros of unfinished code, or left over from a search for a fault.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

pub(crate) fn violations<N: AsRef<str>, T: AsRef<str>>(sources: &[(N, T)]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, text) in sources {
        let (name, text) = (name.as_ref(), text.as_ref());
        if !text.starts_with("//! ") {
            violations.push(format!("{name}: does not open with `//!` and what it is"));
        }
        let lines = lines_of_code(text);
        let is_test = name
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs");
        if lines > LINES && !is_test {
            violations.push(format!(
                "{name}: {lines} lines are over {LINES}; it has more than one idea"
            ));
        }
        for number in wide_comments(text) {
            violations.push(format!(
                "{name}:{number}: a comment is wider than {COLUMNS} columns"
            ));
        }
        // A log line is found by a word that stays the same when files move.
        for (number, line) in text.lines().enumerate() {
            let is_log = ["error", "warn", "info", "debug", "trace"]
                .iter()
                .any(|level| {
                    line.contains(&format!("tracing::{level}!("))
                        || line.contains(&format!("tracing::{level}_span!("))
                });
            let next = text.lines().nth(number + 1).unwrap_or_default();
            if is_log && ![line, next].iter().any(|line| line.contains("target: ")) {
                violations.push(format!(
                    "{name}:{}: a log line without `target:`",
                    number + 1
                ));
            }
        }
        let mut called = Vec::new();
        macros(text.parse().expect("Rust"), &mut called);
        called.retain(|(name, _)| UNFINISHED.contains(&name.as_str()));
        for (call, line) in called {
            violations.push(format!("{name}:{line}: {call}!"));
        }
    }
    violations
}

fn wide_comments(text: &str) -> Vec<usize> {
    let mut is_fenced = false;
    let mut wide = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let prose = comment.trim_start_matches(['/', '!']).trim_start();
        is_fenced ^= prose.starts_with("```");
        if !is_fenced && !prose.starts_with('|') && line.chars().count() > COLUMNS {
            wide.push(index + 1);
        }
    }
    wide
}

fn lines_of_code(text: &str) -> usize {
    let for_tests = find(&[], Vec::new(), text).test_lines;
    text.lines()
        .enumerate()
        .filter(|(index, line)| {
            let is_doc = ["///", "//!"]
                .iter()
                .any(|mark| line.trim_start().starts_with(mark));
            let is_test = for_tests.iter().any(|lines| lines.contains(&(index + 1)));
            !is_doc && !is_test
        })
        .count()
}
