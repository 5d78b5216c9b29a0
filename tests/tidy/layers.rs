//! The table of layers, and what it allows.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::Tree;

/// Each unit and its layer. A unit owns the modules beneath it, except for `store`, whose children are units.
///
/// | layer | what |
/// |---|---|
/// | 6 | faces |
/// | 5 | recipes |
/// | 4 | the engine |
/// | 3 | the chain of handlers |
/// | 2 | stores and fences |
/// | 1 | the seam between manager and stores |
/// | 0 | words |
const UNITS: &[(&str, u8)] = &[
    ("", 6),
    ("config", 6),
    ("connect", 6),
    ("docs", 6),
    ("test_util", 6),
    ("recipes", 5),
    ("manager", 4),
    ("executor", 4),
    ("handler", 3),
    ("fence", 2),
    ("store::memory", 2),
    ("store::prefix", 2),
    ("store::faulty", 2),
    ("store::quorum", 2),
    ("store::redis", 2),
    ("store::zookeeper", 2),
    ("store", 1),
    ("store::capability", 1),
    ("store::claim", 1),
    ("store::erased", 1),
    ("store::member", 1),
    ("store::outcome", 1),
    ("conformance", 1),
    ("clock", 0),
    ("lease", 0),
    ("model", 0),
    ("model::commit", 0),
    ("settings", 0),
];

/// Command-line tools are crates of their own, and see what every user sees.
const TOOLS: &str = "bin";

const SEAM: u8 = 1;

type Unit = (&'static str, u8);

fn unit_of(module: &[String]) -> Option<Unit> {
    (0..=module.len()).rev().find_map(|length| {
        let name = module[..length].join("::");
        let unit = UNITS.iter().find(|(unit, _)| *unit == name)?;
        let owns_children = !matches!(unit.0, "" | "store");
        (length == module.len() || owns_children).then_some(*unit)
    })
}

pub(crate) fn violations(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    let mut beside: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, found) in tree.named_modules() {
        let file = tree.file(module);
        if module.first().is_some_and(|first| first == TOOLS) {
            continue;
        }
        let Some(from) = unit_of(module) else {
            violations.push(format!(
                "{file}: is in no layer; give it a row in tests/tidy/layers.rs"
            ));
            continue;
        };
        for named in &found.paths {
            let to = tree.defining_module(&named.path);
            let Some(to) = unit_of(&to) else {
                continue; // Told above, for the file itself.
            };
            let written = tree.written_module(&named.path);
            if let Some(rule) = broken_rule(from, to, unit_of(&written)) {
                let path = named.path.join("::");
                violations.push(format!("{file}:{}: {path}: {rule}", named.line));
            }
            if from.1 == to.1 && from.1 != SEAM && from != to {
                beside.entry(from.0).or_default().insert(to.0);
            }
        }
    }
    violations.extend(circles(&beside));
    violations
}

fn broken_rule(from: Unit, to: Unit, written: Option<Unit>) -> Option<String> {
    if from == to {
        return None;
    }
    let arrow = format!(
        "{} (layer {}) sees {} (layer {})",
        shown(from),
        from.1,
        shown(to),
        to.1
    );
    if to.1 > from.1 {
        return Some(format!("{arrow}: an arrow that goes up"));
    }
    if from.0 == "executor" && to.1 > 0 {
        return Some(format!("{arrow}: the executor sees layer 0 only"));
    }
    let are_stores = [from, to]
        .iter()
        .all(|unit| unit.0.starts_with("store::") && unit.1 == 2);
    if are_stores && written == Some(to) {
        return Some(format!(
            "{arrow}: a store names another through `crate::store` only"
        ));
    }
    None
}

fn shown(unit: Unit) -> &'static str {
    if unit.0.is_empty() { "lib.rs" } else { unit.0 }
}

/// Units of one layer may see each other one way, never in a circle.
fn circles(beside: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let reaches = |start: &str, goal: &str| {
        let mut open: Vec<&str> = vec![start];
        let mut seen = BTreeSet::new();
        while let Some(unit) = open.pop() {
            for next in beside.get(unit).into_iter().flatten() {
                if *next == goal {
                    return true;
                }
                if seen.insert(*next) {
                    open.push(next);
                }
            }
        }
        false
    };
    let in_circles: Vec<&str> = beside
        .keys()
        .copied()
        .filter(|unit| reaches(unit, unit))
        .collect();
    if in_circles.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{}: see each other in a circle",
        in_circles.join(", ")
    )]
}
