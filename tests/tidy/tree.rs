//! All modules of the crate, and where a path ends in them.

use std::collections::BTreeMap;

use crate::paths::{Module, Segments, find};

/// How many re-exports are followed; more is a circle.
const HOPS: usize = 32;

/// The folders of the other packages, each a crate of its own: the command-line tool, and the fence
/// over sqlx.
pub(crate) const PACKAGES: [&str; 2] = ["cli", "sqlx"];

#[derive(Debug)]
pub(crate) struct Tree {
    modules: BTreeMap<Segments, Module>,
    files: BTreeMap<Segments, String>,
}

impl Tree {
    /// The tree of files, each with its name and its text: `lease/words.rs` is in `src/`,
    /// `cli/main.rs` in `cli/src/`. Files of tests are left out.
    pub(crate) fn of<N: AsRef<str>, T: AsRef<str>>(sources: &[(N, T)]) -> Self {
        let mut tree = Self {
            modules: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        let mut for_tests: Vec<Segments> = Vec::new();
        for (name, text) in sources {
            let module = module_of(name.as_ref());
            tree.files.insert(module.clone(), name.as_ref().to_owned());
            let found = find(&root_of(&module), module, text.as_ref());
            tree.modules.extend(found.modules);
            for_tests.extend(found.for_tests);
        }
        let is_kept = |module: &Segments| !for_tests.iter().any(|tests| module.starts_with(tests));
        tree.modules.retain(|module, _| is_kept(module));
        tree.files.retain(|module, _| is_kept(module));
        tree
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    pub(crate) fn named_modules(&self) -> impl Iterator<Item = (&Segments, &Module)> {
        self.modules.iter()
    }

    pub(crate) fn module_of_file(&self, file: &str) -> &Segments {
        let found = self.files.iter().find(|(_, name)| *name == file);
        found.expect("a file of the tree").0
    }

    /// The file that holds a module.
    pub(crate) fn file(&self, module: &[String]) -> &str {
        (0..=module.len())
            .rev()
            .find_map(|length| self.files.get(&module[..length]))
            .map_or("?", String::as_str)
    }

    /// The module that a path leads into as it is written.
    pub(crate) fn written_module(&self, path: &[String]) -> Segments {
        let is_module = |length: &usize| self.modules.contains_key(&path[..*length]);
        let depth = (0..=path.len()).rev().find(is_module).unwrap_or(0);
        path[..depth].to_vec()
    }

    /// The module that defines what a path names: names that were brought in by `use` are followed.
    pub(crate) fn defining_module(&self, path: &[String]) -> Segments {
        let mut path = path.to_vec();
        for _ in 0..HOPS {
            let module = self.written_module(&path);
            let Some(name) = path.get(module.len()) else {
                return module;
            };
            let Some(target) = self
                .modules
                .get(&module)
                .and_then(|module| module.brought_in.get(name))
            else {
                return module;
            };
            let mut followed = target.clone();
            followed.extend_from_slice(&path[module.len() + 1..]);
            if followed == path {
                return module;
            }
            path = followed;
        }
        panic!("{} leads to itself", path.join("::"));
    }
}

/// `lease/words.rs` is `lease::words`, `lease/mod.rs` is `lease`, `lib.rs` is the root,
/// `cli/main.rs` that of the tool.
fn module_of(file: &str) -> Segments {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let mut module: Segments = stem.split('/').map(str::to_owned).collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// The module that `crate` means within a module.
fn root_of(module: &[String]) -> Segments {
    match module {
        [first, ..] if PACKAGES.contains(&first.as_str()) => vec![first.clone()],
        _ => Vec::new(),
    }
}
