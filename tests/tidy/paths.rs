//! The paths that a file names, each from the root of the crate, and the names that it hands through.

use std::collections::BTreeMap;

use crate::lexer::{Word, words};

/// `["lease", "words", "Words"]`; empty for the root.
pub(crate) type Segments = Vec<String>;

/// A path that stands in a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) path: Segments,
    pub(crate) line: usize,
}

/// What stands in one module, inline or a file.
#[derive(Default, Debug)]
pub(crate) struct Module {
    pub(crate) paths: Vec<Named>,
    /// The names that `use` brings in, with the paths that they stand for.
    pub(crate) brought_in: BTreeMap<String, Segments>,
}

/// What one file holds: its modules, by path.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub(crate) modules: BTreeMap<Segments, Module>,
    /// Modules that are compiled for tests alone.
    pub(crate) for_tests: Vec<Segments>,
    /// The lines of items that are compiled for tests alone.
    pub(crate) test_lines: Vec<std::ops::RangeInclusive<usize>>,
}

pub(crate) fn find(module: Segments, text: &str) -> Found {
    let mut reader = Reader {
        words: words(text),
        at: 0,
        module,
        inline: Vec::new(),
        depth: 0,
        found: Found::default(),
    };
    reader.here();
    reader.run();
    reader.found
}

struct Reader {
    words: Vec<Word>,
    at: usize,
    module: Segments,
    /// At which depth of braces each inline module began.
    inline: Vec<usize>,
    depth: usize,
    found: Found,
}

impl Reader {
    fn run(&mut self) {
        while let Some(word) = self.words.get(self.at).cloned() {
            match word.text.as_str() {
                "{" => self.depth += 1,
                "}" => self.close(),
                "#" if self.is_for_tests() => {
                    self.skip_item();
                    continue;
                }
                "mod" if self.is(2, "{") => {
                    self.module.push(self.words[self.at + 1].text.clone());
                    self.here();
                    self.inline.push(self.depth);
                    self.depth += 1;
                    self.at += 2;
                }
                "use" if !self.is(1, "<") => {
                    self.read_use();
                    continue;
                }
                "crate" | "super" | "self" if self.is(1, "::") => {
                    self.read_path();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn is(&self, ahead: usize, text: &str) -> bool {
        self.words
            .get(self.at + ahead)
            .is_some_and(|word| word.is(text))
    }

    fn here(&mut self) -> &mut Module {
        self.found.modules.entry(self.module.clone()).or_default()
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.inline.last() == Some(&self.depth) {
            self.inline.pop();
            self.module.pop();
        }
    }

    /// `#[cfg(test)]`, or `test` beside other conditions.
    fn is_for_tests(&self) -> bool {
        let attribute = self.attribute(self.at);
        attribute.first().is_some_and(|word| word.is("cfg"))
            && attribute.iter().any(|word| word.is("test"))
            && !attribute.iter().any(|word| word.is("not"))
    }

    /// The words between the brackets of the attribute that starts at `start`.
    fn attribute(&self, start: usize) -> &[Word] {
        if !self.words.get(start + 1).is_some_and(|word| word.is("[")) {
            return &[];
        }
        let mut depth = 0;
        for (index, word) in self.words.iter().enumerate().skip(start + 1) {
            match word.text.as_str() {
                "[" => depth += 1,
                "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return &self.words[start + 2..index];
            }
        }
        &[]
    }

    /// Skips attributes and the item beneath them.
    fn skip_item(&mut self) {
        let first = self.words[self.at].line;
        while self.is(0, "#") {
            self.at += self.attribute(self.at).len() + 3;
        }
        let mut depth = 0usize;
        let mut is_use = false;
        while let Some(word) = self.words.get(self.at).cloned() {
            match word.text.as_str() {
                "mod" if depth == 0 => {
                    let mut module = self.module.clone();
                    module.push(self.words[self.at + 1].text.clone());
                    self.found.for_tests.push(module);
                }
                "use" if depth == 0 => is_use = true,
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            let ends = word.is(";") || (word.is("}") && !is_use);
            if depth == 0 && ends {
                self.found.test_lines.push(first..=word.line);
                return;
            }
        }
    }

    fn read_use(&mut self) {
        let is_handed_through = self.at > 0 && {
            let before = &self.words[self.at - 1];
            before.is("pub") || (before.is(")") && self.is_visibility())
        };
        self.at += 1;
        let mut leaves = Vec::new();
        self.read_tree(&mut Vec::new(), &mut leaves);
        for (written, name, line) in leaves {
            let is_rooted = ["crate", "super", "self"].contains(&written[0].as_str());
            let path = self.rooted(&written);
            // A module hands through what its own children define: that is what it is for.
            if is_rooted || !is_handed_through {
                let path = path.clone();
                self.here().paths.push(Named { path, line });
            }
            self.here().brought_in.insert(name, path);
        }
    }

    /// Whether the `)` before `use` closes `pub(...)`.
    fn is_visibility(&self) -> bool {
        self.words[..self.at]
            .iter()
            .rev()
            .find(|word| word.is("(") || word.is(";"))
            .is_some_and(|word| word.is("("))
    }

    /// One tree of a `use`, up to the `,`, `}` or `;` behind it.
    fn read_tree(&mut self, prefix: &mut Segments, leaves: &mut Vec<(Segments, String, usize)>) {
        let length = prefix.len();
        while let Some(word) = self.words.get(self.at).cloned() {
            self.at += 1;
            match word.text.as_str() {
                "::" => {}
                "{" => {
                    while !self.is(0, "}") && self.at < self.words.len() {
                        self.read_tree(prefix, leaves);
                        if self.is(0, ",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "as" => {
                    let name = self.words[self.at].text.clone();
                    self.at += 1;
                    leaves.push((prefix.clone(), name, word.line));
                    prefix.truncate(length);
                    return;
                }
                "," | "}" | ";" => {
                    self.at -= 1;
                    break;
                }
                "self" if !prefix.is_empty() => {}
                _ => prefix.push(word.text),
            }
            if [",", "}", ";"].iter().any(|end| self.is(0, end)) {
                if let Some(name) = prefix.last().cloned() {
                    leaves.push((prefix.clone(), name, word.line));
                }
                break;
            }
        }
        prefix.truncate(length);
    }

    /// A path outside a `use`.
    fn read_path(&mut self) {
        let line = self.words[self.at].line;
        let mut written = vec![self.words[self.at].text.clone()];
        self.at += 1;
        while self.is(0, "::") {
            match self.words.get(self.at + 1) {
                Some(word) if is_name(&word.text) => written.push(word.text.clone()),
                _ => break,
            }
            self.at += 2;
        }
        let path = self.rooted(&written);
        self.here().paths.push(Named { path, line });
    }

    fn rooted(&self, written: &[String]) -> Segments {
        let mut path = match written[0].as_str() {
            "crate" => Vec::new(),
            _ => self.module.clone(),
        };
        for segment in written {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    path.pop();
                }
                name => path.push(name.to_owned()),
            }
        }
        path
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c == '_' || c.is_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(module: &[&str], text: &str) -> Vec<String> {
        let module = module.iter().map(|s| (*s).to_owned()).collect();
        let found = find(module, text);
        let modules = found.modules.into_values();
        modules
            .flat_map(|module| module.paths)
            .map(|named| named.path.join("::"))
            .collect()
    }

    #[test]
    fn groups_and_nests_are_spread_out() {
        let text = "use crate::{a, b::{C, d::E as F, self}, g::*}; pub(crate) use super::{h::I};";
        assert_eq!(
            named(&["x", "y"], text),
            ["a", "b::C", "b::d::E", "b", "g::*", "x::h::I"]
        );
    }

    #[test]
    fn paths_in_code_count() {
        let text = "fn f(a: crate::a::A) -> super::super::B { self::c::d::<crate::e::E>() }";
        assert_eq!(
            named(&["x", "y"], text),
            ["a::A", "B", "x::y::c::d", "e::E"]
        );
    }

    #[test]
    fn an_inline_module_is_a_module() {
        let text = "mod inner { use super::A; fn f() { super::g() } } use super::B;";
        assert_eq!(named(&["x", "y"], text), ["x::B", "x::y::A", "x::y::g"]);
    }

    #[test]
    fn what_is_for_tests_alone_does_not_count() {
        let text = "
            #[cfg(test)] use crate::{a, b};
            #[cfg(all(test, unix))] #[allow(x)] mod tests { use crate::c; }
            #[cfg(test)] mod more;
            #[cfg(not(test))] use crate::d;
            #[cfg(feature = \"test-util\")] use crate::e;
            pub use child::F;";
        assert_eq!(named(&["x"], text), ["d", "e"]);
        let found = find(vec!["x".to_owned()], text);
        assert_eq!(found.for_tests.len(), 2);
    }
}
