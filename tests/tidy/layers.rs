//! The table of layers, and what it allows.

use crate::paths::Segments;
use crate::tree::{PACKAGES, Tree};

/// Each folder of `src/` and its layer; a folder owns what is beneath it. Stores without a folder
/// of their own have no row: every child of `store` is one, except for the files of the seam.
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
const FOLDERS: &[(&str, u8)] = &[
    ("", 6),
    ("config", 6),
    ("connect", 6),
    ("docs", 6),
    ("health", 6),
    ("run", 6),
    ("testing", 6),
    ("recipes", 5),
    ("manager", 4),
    ("executor", 4),
    ("handler", 3),
    ("redis", 2),
    ("postgres", 2),
    ("zookeeper", 2),
    ("kubernetes", 2),
    ("bucket", 2),
    ("fence", 2),
    ("store", 1),
    ("clock", 0),
    ("lease", 0),
    ("model", 0),
    ("settings", 0),
];

/// The files of `store` that every store rests on.
const SEAM: [&str; 9] = [
    "access",
    "capability",
    "claim",
    "dial",
    "erased",
    "http",
    "member",
    "outcome",
    "url",
];

const STORES: u8 = 2;

/// The folders of one store and its fence each.
const ROOMS: [&str; 4] = ["redis", "postgres", "zookeeper", "kubernetes"];

/// What the table knows a module as, and its layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) name: String,
    layer: u8,
}

/// `None` for what has no row.
pub(crate) fn unit_of(module: &[String]) -> Option<Unit> {
    let is_store = |child: &String| !SEAM.contains(&child.as_str());
    if let [first, child, ..] = module
        && first == "store"
        && is_store(child)
    {
        let (name, layer) = (format!("store::{child}"), STORES);
        return Some(Unit { name, layer });
    }
    let folder = module.first().map_or("", String::as_str);
    let (name, layer) = FOLDERS.iter().find(|(name, _)| *name == folder)?;
    let (name, layer) = ((*name).to_owned(), *layer);
    Some(Unit { name, layer })
}

pub(crate) fn violations(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    for (module, found) in tree.named_modules() {
        let file = tree.file(module);
        // Another package is a crate of its own, and sees what every user sees.
        if module
            .first()
            .is_some_and(|first| PACKAGES.contains(&first.as_str()))
        {
            continue;
        }
        let Some(from) = unit_of(module) else {
            violations.push(format!(
                "{file}: is in no layer; give its folder a row in tests/tidy/layers.rs"
            ));
            continue;
        };
        for named in &found.paths {
            // What has no row is reported above, for its own file.
            let Some(to) = unit_of(&tree.defining_module(&named.path)) else {
                continue;
            };
            let written = tree.written_module(&named.path);
            if let Some(rule) = broken_rule(&from, &to, &written) {
                let path = named.path.join("::");
                violations.push(format!("{file}:{}: {path}: {rule}", named.line));
            }
        }
    }
    violations
}

fn broken_rule(from: &Unit, to: &Unit, written: &Segments) -> Option<String> {
    if from == to {
        return None;
    }
    let arrow = format!("{} sees {}", shown(from), shown(to));
    if to.layer > from.layer {
        return Some(format!("{arrow}: an arrow that goes up"));
    }
    if from.name == "executor" && to.layer > 0 {
        return Some(format!("{arrow}: the executor sees layer 0 only"));
    }
    let are_stores = [from, to]
        .iter()
        .all(|unit| unit.name.starts_with("store::") || ROOMS.contains(&unit.name.as_str()));
    if are_stores && unit_of(written).as_ref() == Some(to) {
        return Some(format!(
            "{arrow}: a store names another through `crate::store` only"
        ));
    }
    None
}

fn shown(unit: &Unit) -> String {
    let name = match unit.name.as_str() {
        "" => "lib.rs",
        name => name,
    };
    format!("{name} (layer {})", unit.layer)
}
