//! Circles of files that import each other.
//!
//! A module and one of its children may see each other; more than two files that do must be read at
//! once to be understood. Files of different folders of one layer are in no circle at all: that is
//! what orders the folders.

use std::collections::{BTreeMap, BTreeSet};

use crate::layers::unit_of;
use crate::tree::{PACKAGES, Tree};

type Arrows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(crate) fn violations(tree: &Tree) -> Vec<String> {
    let arrows = arrows(tree);
    let reached: Arrows<'_> = arrows
        .keys()
        .map(|file| (*file, reached_from(file, &arrows)))
        .collect();
    let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (file, others) in &reached {
        let has_way_back = |other: &&&str| reached.get(*other).is_some_and(|o| o.contains(file));
        circles.insert(others.iter().filter(has_way_back).copied().collect());
    }
    circles
        .into_iter()
        .filter(|circle| circle.len() > 2 || !is_in_one_folder(tree, circle))
        .map(|circle| {
            let count = circle.len();
            let inside = |from: &&str, to: &&&str| circle.contains(to) && from != *to;
            let lines = circle.iter().map(|from| {
                let to: Vec<_> = arrows[from].iter().filter(|to| inside(from, to)).collect();
                format!("\n    {from} -> {to:?}")
            });
            format!(
                "{count} files see each other in a circle:{}",
                lines.collect::<String>()
            )
        })
        .collect()
}

fn arrows(tree: &Tree) -> Arrows<'_> {
    let mut arrows = Arrows::new();
    for (module, found) in tree.named_modules() {
        let from = tree.file(module);
        let to = found.paths.iter().map(|named| {
            let target = tree.defining_module(&named.path);
            tree.file(&target)
        });
        // `?` is outside of the tree.
        let to = to.filter(|to| *to != from && *to != "?");
        arrows.entry(from).or_default().extend(to);
    }
    arrows
}

/// The files to which arrows lead from a file, in any number of steps. The file itself, if it is in
/// a circle.
fn reached_from<'a>(file: &'a str, arrows: &Arrows<'a>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for next in arrows.get(file).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

fn is_in_one_folder(tree: &Tree, circle: &[&str]) -> bool {
    let folder = |file: &str| {
        let module = tree.module_of_file(file);
        match module.first() {
            Some(first) if PACKAGES.contains(&first.as_str()) => Some(first.clone()),
            _ => unit_of(module).map(|unit| unit.name),
        }
    };
    circle
        .windows(2)
        .all(|two| folder(two[0]) == folder(two[1]))
}
