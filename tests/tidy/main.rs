//! Checks the layers of ARCHITECTURE.md with every `use` and every path in `src/`, `cli/src/`
//! and `sqlx/src/`:
//! arrows go down only, and at most two files see each other.
//!
//! Re-exports are followed to where a name is defined, therefore a short path hides nothing.
//! Comments, strings and what is compiled for tests alone do not count. The rules themselves are
//! tested on small trees that break one of them. Other checks are of docs, and of the models that
//! are proved.

#![allow(
    clippy::unwrap_used,
    reason = "a file that cannot be read is a failing test"
)]

mod circles;
mod docs;
mod form;
mod layers;
mod paths;
mod planted;
mod proofs;
mod runbook;
mod tokens;
mod tree;

use std::path::Path;

use tree::{PACKAGES, Tree};

fn sources() -> Vec<(String, String)> {
    files("rs")
}

/// The files in `src/` with this ending, by name; those of another package begin with its folder.
fn files(ending: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, ending: &str, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, ending, found);
            } else if path.extension().is_some_and(|other| other == ending) {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((name.replace('\\', "/"), text));
            }
        }
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for package in PACKAGES {
        let sources = repository.join(package).join("src");
        let mut of_it = Vec::new();
        walk(&sources, &sources, ending, &mut of_it);
        let named = |(name, text)| (format!("{package}/{name}"), text);
        found.extend(of_it.into_iter().map(named));
    }
    walk(
        &repository.join("src"),
        &repository.join("src"),
        ending,
        &mut found,
    );
    found.sort();
    found
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn arrows_go_down_only() {
    let tree = Tree::of(&sources());
    let paths: usize = tree.modules().map(|module| module.paths.len()).sum();
    assert!(paths > 100, "only {paths} paths were found");
    assert_none(&layers::violations(&tree));
}

#[test]
fn at_most_two_files_see_each_other() {
    assert_none(&circles::violations(&Tree::of(&sources())));
}

#[test]
fn every_file_is_short_opens_with_prose_and_is_finished() {
    assert_none(&form::violations(&sources()));
}

#[test]
fn examples_fit_their_column_and_tables_have_headers() {
    let pages = files("md");
    assert!(pages.len() > 10, "only {} pages were found", pages.len());
    assert_none(&docs::violations(&pages));
    // The tool's own files are not published.
    let mut published = sources();
    published.retain(|(name, _)| !name.starts_with("cli/"));
    assert_none(&docs::violations(&published));
}

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn the_runbook_has_every_warning_and_error_of_the_log() {
    assert_none(&runbook::violations(
        &sources(),
        &read("src/docs/runbook.md"),
    ));
}

#[test]
fn every_alert_has_its_chapter_and_every_metric_exists() {
    let alerts = read("examples/grafana/alerts.yml");
    let table = read("src/handler/metrics/mod.rs");
    assert_none(&runbook::alert_violations(
        &alerts,
        &read("src/docs/runbook.md"),
        &table,
    ));
}

#[test]
fn every_rule_of_a_proof_has_its_line_and_its_mutant() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(repository.join("tests/proof/smt")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|other| other != "py") {
            continue;
        }
        let model = std::fs::read_to_string(&path).unwrap();
        count += proofs::rules(&model).len();
        let read = |name: &str| std::fs::read_to_string(repository.join(name)).ok();
        let violations = proofs::violations(&model, read);
        let named = violations.iter().map(|what| format!("{path:?}: {what}"));
        assert_none(&named.collect::<Vec<_>>());
    }
    assert!(count > 50, "only {count} rules were found");
}

/// With Prometheus' own program, where it is installed: each alert fires for its fault, and for
/// nothing else.
#[test]
fn prometheus_reads_the_alerts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/grafana");
    let mut command = std::process::Command::new("promtool");
    command.args(["test", "rules", "alerts_test.yml"]);
    match command.current_dir(folder).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => println!("did not run: promtool is not installed (apt-get install prometheus)"),
    }
}
