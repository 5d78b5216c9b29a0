//! Small trees that break one rule each: the checker finds it, and nothing else.

use crate::{circles, docs, form, layers, proofs, runbook, tree::Tree};

/// A few files, added to some that break nothing.
fn planted_tree(planted: &[(&str, &str)]) -> Tree {
    let sound = [
        (
            "lib.rs",
            "pub use store::MemoryStore; pub use manager::LockManager; pub mod store;",
        ),
        ("model/mod.rs", "pub(crate) mod error; pub(crate) mod key;"),
        ("model/error.rs", "pub struct Error;"),
        ("model/key.rs", "use crate::model::error::Error;"),
        (
            "lease/mod.rs",
            "mod words; pub use words::Words; use crate::model::key::Key;",
        ),
        (
            "lease/words.rs",
            "use super::Key; use crate::model::error::Error;",
        ),
        (
            "store/mod.rs",
            "mod memory; mod claim; pub use memory::MemoryStore; pub use claim::Claim;",
        ),
        (
            "store/claim.rs",
            "use crate::model::key::Key; use super::Store;",
        ),
        (
            "store/memory.rs",
            "use super::{Claim, Store}; pub struct MemoryStore;",
        ),
        (
            "manager/mod.rs",
            "use crate::store::Store; use crate::executor::Executor;",
        ),
        ("executor/mod.rs", "use crate::lease::Lease;"),
        ("recipes/lock.rs", "use crate::manager::LockManager;"),
    ];
    let kept = sound
        .iter()
        .filter(|(name, _)| !planted.iter().any(|(other, _)| other == name));
    let sources: Vec<_> = kept.chain(planted).copied().collect();
    Tree::of(&sources)
}

fn said_of(planted: &[(&str, &str)]) -> Vec<String> {
    layers::violations(&planted_tree(planted))
}

fn circles_of(planted: &[(&str, &str)]) -> Vec<String> {
    circles::violations(&planted_tree(planted))
}

fn assert_one(violations: &[String], place: &str, rule: &str) {
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert!(violations[0].starts_with(place), "{violations:#?}");
    assert!(violations[0].contains(rule), "{violations:#?}");
}

#[test]
fn a_sound_tree_is_sound() {
    assert_eq!(said_of(&[]), [""; 0]);
    assert_eq!(circles_of(&[]), [""; 0]);
}

#[test]
fn an_arrow_that_goes_up_is_found_in_every_form() {
    for text in [
        "use crate::manager::LockManager;",
        "use crate::{model::error::Error, manager::{self, LockManager}};",
        "pub(crate) use crate::manager as engine;",
        "use super::super::manager::LockManager;",
        "fn f() -> crate::manager::LockManager {}",
        "mod inner { pub(super) fn f(m: super::super::super::manager::M) {} }",
        "macro_rules! m { () => { $crate::manager::LockManager } }",
        "use crate::LockManager;",
        "use crate::*;",
    ] {
        let said = said_of(&[("model/key.rs", &format!("\n{text}"))]);
        assert!(!said.is_empty(), "{text}");
        for violation in said {
            assert!(
                violation.starts_with("model/key.rs:2: "),
                "{text}: {violation}"
            );
            assert!(violation.contains("goes up"), "{text}: {violation}");
        }
    }
}

#[test]
fn an_arrow_through_a_re_export_is_found() {
    let said = said_of(&[("store/claim.rs", "use super::MemoryStore;")]);
    assert_one(
        &said,
        "store/claim.rs:1",
        "store (layer 1) sees store::memory (layer 2)",
    );
}

#[test]
fn the_seam_re_exports_its_stores_and_uses_none() {
    let said = said_of(&[("store/mod.rs", "mod memory; use memory::MemoryStore;")]);
    assert_one(
        &said,
        "store/mod.rs:1",
        "store (layer 1) sees store::memory (layer 2)",
    );
}

#[test]
fn the_executor_sees_words_only() {
    for text in [
        "use crate::store::Claim;",
        "use crate::manager::LockManager;",
    ] {
        let said = said_of(&[("executor/run.rs", text)]);
        assert!(
            said[0].contains("the executor sees layer 0 only"),
            "{said:#?}"
        );
    }
}

#[test]
fn a_store_names_another_through_the_seam_only() {
    let said = said_of(&[("store/quorum/mod.rs", "use super::memory::MemoryStore;")]);
    assert_one(
        &said,
        "store/quorum/mod.rs:1",
        "through `crate::store` only",
    );
    assert_eq!(
        said_of(&[("store/quorum/mod.rs", "use crate::store::MemoryStore;")]),
        [""; 0]
    );
}

#[test]
fn a_circle_over_two_folders_is_found() {
    let said = circles_of(&[
        ("clock/mod.rs", "use crate::settings::Settings;"),
        ("settings/mod.rs", "use crate::clock::Clock;"),
    ]);
    assert_one(&said, "2 files", "clock/mod.rs -> [\"settings/mod.rs\"]");
}

#[test]
fn two_files_of_a_folder_may_see_each_other() {
    assert_eq!(
        circles_of(&[("model/error.rs", "use crate::model::key::Key;")]),
        [""; 0]
    );
}

#[test]
fn a_circle_of_three_files_is_found_in_every_form() {
    for text in [
        "use super::key::Key;",
        "use super::super::model::key::Key;",
        "use crate::model::Key;",
        "fn f(key: super::key::Key) {}",
        "fn f() { m!(super::key::Key) }",
    ] {
        let said = circles_of(&[
            (
                "model/mod.rs",
                "mod error; mod key; mod holder; pub use key::Key;",
            ),
            ("model/key.rs", "use super::error::Error;"),
            ("model/error.rs", "use super::holder::Holder;"),
            ("model/holder.rs", text),
        ]);
        assert_one(&said, "3 files", "model/holder.rs -> [\"model/key.rs\"]");
    }
}

#[test]
fn a_parent_that_calls_its_children_is_in_their_circle() {
    let said = circles_of(&[
        ("model/mod.rs", "mod error; mod key; fn f() { key::f(); }"),
        ("model/key.rs", "use super::error::Error;"),
        ("model/error.rs", "use super::f;"),
    ]);
    assert_one(&said, "3 files", "model/mod.rs -> [\"model/key.rs\"]");
}

#[test]
fn a_circle_in_the_tool_is_found() {
    let said = circles_of(&[
        ("cli/main.rs", "mod a; mod b; fn f() { a::f() }"),
        ("cli/a.rs", "use crate::b::B;"),
        ("cli/b.rs", "use crate::f;"),
    ]);
    assert_one(&said, "3 files", "cli/a.rs -> [\"cli/b.rs\"]");
}

#[test]
fn a_file_in_no_layer_is_found() {
    assert_one(&said_of(&[("util.rs", "")]), "util.rs", "in no layer");
}

#[test]
fn every_child_of_the_seam_is_a_store() {
    let said = said_of(&[
        ("store/etc.rs", "pub struct Etc;"),
        ("store/claim.rs", "use super::etc::Etc;"),
    ]);
    assert_one(
        &said,
        "store/claim.rs:1",
        "store (layer 1) sees store::etc (layer 2)",
    );
}

#[test]
fn tests_beside_the_code_may_see_everything() {
    let planted = [
        (
            "model/key.rs",
            "#[cfg(test)] mod tests; #[cfg(test)] mod more { use crate::manager::M; }",
        ),
        ("model/key/tests.rs", "use crate::manager::LockManager;"),
    ];
    assert_eq!(said_of(&planted), [""; 0]);
}

#[test]
fn a_file_called_tests_that_is_always_compiled_is_no_test() {
    let planted = [
        ("model/key.rs", "mod tests;"),
        ("model/key/tests.rs", "use crate::manager::LockManager;"),
    ];
    assert_one(&said_of(&planted), "model/key/tests.rs:1", "goes up");
}

#[test]
fn the_form_of_a_file_is_judged() {
    let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(501));
    assert_one(
        &form::violations(&[("a.rs", &long)]),
        "a.rs: 501 lines",
        "more than one idea",
    );
    let tested = format!(
        "//! Tested.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n",
        "/// Said.\nfn f() {}\n".repeat(499),
        "fn g() {}\n".repeat(500)
    );
    assert_eq!(form::violations(&[("a.rs", &tested)]), [""; 0]);
    assert_one(
        &form::violations(&[("a.rs", "fn f() {}")]),
        "a.rs: does not open",
        "//!",
    );
    let wide = format!("//! A.\n    /// {}.\nfn f() {{}}", "a ".repeat(50));
    assert_one(&form::violations(&[("a.rs", &wide)]), "a.rs:2", "columns");
    let table = format!("//! A.\n//! | {} |\nfn f() {{}}", "a ".repeat(50));
    assert_eq!(form::violations(&[("a.rs", &table)]), [""; 0]);
    assert_one(
        &form::violations(&[("a.rs", "//! A.\nfn f() { todo!() }")]),
        "a.rs:2",
        "todo!",
    );
}

#[test]
fn the_form_of_the_docs_is_judged() {
    let wide = "x".repeat(77);
    let example = format!("/// ```\n/// {wide}\n/// ```\nfn f() {{}}");
    assert_one(&docs::violations(&[("a.rs", &example)]), "a.rs:2", "76");
    let page = format!("```text\n{wide}\n```\n{wide}");
    assert_one(&docs::violations(&[("a.md", &page)]), "a.md:2", "76");
    let table = "/// | option | |\n/// |---|---|";
    assert_one(
        &docs::violations(&[("a.rs", table)]),
        "a.rs:2",
        "nameless column",
    );
    let hidden = format!("//! ```\n//! # {wide}\n//! ```\n//! | a | b |\n//! |---|---|\n// {wide}");
    assert_eq!(docs::violations(&[("a.rs", &hidden)]), [""; 0]);
}

const RUNBOOK: &str = "## LeaseholdOne\n\n`leasehold_held`\n\n| WARN `it fails: ...` | why |\n";

#[test]
fn a_line_without_a_row_of_the_runbook_is_found() {
    let fails = "fn f() { tracing::warn!(target: \"t\", key = \"k\", \"it fails: {why:?}\", 1); }";
    let lost = "fn f() { if x { tracing::error!(target: \"t\", \"it is lost\"); } }";
    let both = [("a.rs", fails), ("b.rs", lost)];
    assert_eq!(
        runbook::violations(&both[..1], RUNBOOK),
        Vec::<String>::new()
    );
    assert_one(&runbook::violations(&both, RUNBOOK), "b.rs", "it is lost");
    // The level is a part of it.
    let error = fails.replace("warn", "error");
    let violations = runbook::violations(&[("a.rs", &*error)], RUNBOOK);
    assert_eq!(violations.len(), 2, "{violations:?}");
}

#[test]
fn a_row_of_the_runbook_without_a_line_is_found() {
    let other = "fn f() { line!(self, WARN, \"lost\", key(%)); }";
    let row = format!("{RUNBOOK}| WARN `lost` | why |\n");
    let violations = runbook::violations(&[("a.rs", other)], &row);
    assert_one(&violations, "the runbook has a row for no line", "it fails");
}

#[test]
fn an_alert_without_its_chapter_link_or_metric_is_found() {
    let alerts = |name: &str, link: &str, metric: &str| {
        format!(
            "- alert: {name}\n  expr: {metric}_sum > 0\n  runbook_url: https://x/docs/runbook/index.html#{link}\n"
        )
    };
    let table = "| `leasehold_held` |";
    let said = |alerts: &str| runbook::alert_violations(alerts, RUNBOOK, table);
    let sound = alerts("LeaseholdOne", "leaseholdone", "leasehold_held");
    assert_eq!(said(&sound), Vec::<String>::new());
    let nameless = said(&alerts("LeaseholdTwo", "leaseholdtwo", "leasehold_held"));
    assert_eq!(nameless.len(), 2, "{nameless:?}");
    let unlinked = said(&alerts("LeaseholdOne", "other", "leasehold_held"));
    assert_one(&unlinked, "LeaseholdOne", "runbook_url");
    let unmeasured = said(&alerts("LeaseholdOne", "leaseholdone", "leasehold_free"));
    assert_one(&unmeasured, "there is no metric", "leasehold_free");
}

#[test]
fn a_rule_of_a_proof_without_its_line_or_its_mutant_is_found() {
    let of = |table: &str| {
        let model = format!("RULES = \"\"\"\n{table}\"\"\"\nmore: text\n");
        proofs::violations(&model, |name| match name {
            "src/a.rs" => Some("let a = b;\nlet c =\n    d;\n".to_owned()),
            "tests/mutants/m.mutant" => {
                Some("# breaks: a\n<<<<<<<\n let c = d;\n=======\n>>>>>>>\n".to_owned())
            }
            _ => None,
        })
    };
    let sound = "rule: In words.\n    src/a.rs: let c = d;\n    mutant: m\n";
    assert!(of(sound).is_empty(), "{:?}", of(sound));
    assert!(of("rule: In words.\n    none: It is not built.\n").is_empty());
    let line = "    src/a.rs: let c = d;\n";
    let planted = [
        (format!("rule: In words.\n{line}"), "no mutant"),
        ("rule: In words.\n    mutant: m\n".to_owned(), "no line"),
        (format!("{sound}    none: It is not built.\n"), "no line"),
        (sound.replace("c = d", "c = e"), "has no `let c = e;`"),
        (sound.replace("a.rs", "b.rs"), "src/b.rs has no"),
        (sound.replace("t: m", "t: n"), "there is no mutant n"),
        (
            sound.replace("let c = d", "let a = b"),
            "changes none of its lines",
        ),
    ];
    for (table, what) in planted {
        let found = of(&table);
        assert!(found.iter().any(|text| text.contains(what)), "{found:?}");
    }
}
