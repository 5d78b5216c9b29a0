//! The paths that a file names, each from the root of the crate, and the names that it re-exports.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tokens::{attributes, contents, ident_text, is_for_tests};

/// `["lease", "words", "Words"]`; empty for the root.
pub(crate) type Segments = Vec<String>;

/// A path that a module writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) path: Segments,
    pub(crate) line: usize,
}

/// What one module writes, inline or a file.
#[derive(Default, Debug)]
pub(crate) struct Module {
    pub(crate) paths: Vec<Named>,
    /// The names that `use` brings in, with the paths that they mean.
    pub(crate) brought_in: BTreeMap<String, Segments>,
    children: Vec<String>,
}

/// What one file holds: its modules, by path.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub(crate) modules: BTreeMap<Segments, Module>,
    /// Modules that are compiled for tests alone.
    pub(crate) for_tests: Vec<Segments>,
    /// The lines of items that are compiled for tests alone.
    pub(crate) test_lines: Vec<RangeInclusive<usize>>,
}

/// Reads the file of `module`, a module of the crate with this root.
pub(crate) fn find(root: &[String], module: Segments, text: &str) -> Found {
    let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{module:?}: {e}"));
    let mut reader = Reader {
        root,
        module,
        found: Found::default(),
    };
    reader.read(&file.items, |reader| visit::visit_file(reader, &file));
    reader.found
}

struct Reader<'a> {
    root: &'a [String],
    module: Segments,
    found: Found,
}

impl Reader<'_> {
    /// Reads a module whose items these are.
    fn read(&mut self, items: &[syn::Item], visit: impl FnOnce(&mut Self)) {
        let children = items.iter().filter_map(|item| match item {
            syn::Item::Mod(child) => Some(ident_text(&child.ident)),
            _ => None,
        });
        self.here().children = children.collect();
        visit(self);
    }

    fn here(&mut self) -> &mut Module {
        self.found.modules.entry(self.module.clone()).or_default()
    }

    /// Skips what is compiled for tests alone, and notes its lines.
    fn unless_for_tests(
        &mut self,
        span: Span,
        attributes: &[syn::Attribute],
        visit: impl FnOnce(&mut Self),
    ) {
        if is_for_tests(attributes) {
            self.found
                .test_lines
                .push(span.start().line..=span.end().line);
        } else {
            visit(self);
        }
    }

    fn use_tree(
        &mut self,
        tree: &syn::UseTree,
        prefix: &mut Segments,
        leaves: &mut Vec<(Segments, String, Span)>,
    ) {
        let mut leaf = |prefix: &Segments, last: Option<&syn::Ident>, name: String, span| {
            let mut path = prefix.clone();
            path.extend(last.map(ident_text).filter(|last| last != "self"));
            leaves.push((path, name, span));
        };
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(ident_text(&path.ident));
                self.use_tree(&path.tree, prefix, leaves);
                prefix.pop();
            }
            syn::UseTree::Name(name) => {
                let own = ident_text(&name.ident);
                let own = match prefix.last() {
                    Some(last) if own == "self" => last.clone(),
                    _ => own,
                };
                leaf(prefix, Some(&name.ident), own, name.ident.span());
            }
            syn::UseTree::Rename(rename) => {
                let name = ident_text(&rename.rename);
                leaf(prefix, Some(&rename.ident), name, rename.ident.span());
            }
            syn::UseTree::Glob(glob) => {
                let mut path = prefix.clone();
                path.push("*".to_owned());
                leaves.push((path, "*".to_owned(), glob.span()));
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, prefix, leaves);
                }
            }
        }
    }

    /// A path outside a `use`: it counts if it is rooted, or begins with a child of this module.
    fn path(&mut self, written: &[String], line: usize) {
        let Some(first) = written.first() else { return };
        let leads_somewhere = match first.as_str() {
            "crate" | "super" | "self" => true,
            first => self.here().children.iter().any(|child| child == first),
        };
        if leads_somewhere && written.len() > 1 {
            let path = self.rooted(written);
            self.here().paths.push(Named { path, line });
        }
    }

    fn rooted(&self, written: &[String]) -> Segments {
        let mut path = match written.first().map(String::as_str) {
            Some("crate") => self.root.to_vec(),
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

    /// The text of a macro or of an attribute.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let contents = contents(tokens);
        for item in &contents.uses {
            self.visit_item_use(item);
        }
        for path in contents.paths {
            self.path(&path.segments, path.line);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = attributes(item.to_token_stream());
        if let syn::Item::Mod(module) = item
            && is_for_tests(&attributes)
        {
            let mut path = self.module.clone();
            path.push(ident_text(&module.ident));
            self.found.for_tests.push(path);
        }
        let visit = |reader: &mut Self| visit::visit_item(reader, item);
        self.unless_for_tests(item.span(), &attributes, visit);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = attributes(item.to_token_stream());
        let visit = |reader: &mut Self| visit::visit_impl_item(reader, item);
        self.unless_for_tests(item.span(), &attributes, visit);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        let visit = |reader: &mut Self| visit::visit_field(reader, field);
        self.unless_for_tests(field.span(), &field.attrs, visit);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        let visit = |reader: &mut Self| visit::visit_field_value(reader, field);
        self.unless_for_tests(field.span(), &field.attrs, visit);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        let visit = |reader: &mut Self| visit::visit_variant(reader, variant);
        self.unless_for_tests(variant.span(), &variant.attrs, visit);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let visit = |reader: &mut Self| visit::visit_arm(reader, arm);
        self.unless_for_tests(arm.span(), &arm.attrs, visit);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let visit = |reader: &mut Self| visit::visit_local(reader, local);
        self.unless_for_tests(local.span(), &local.attrs, visit);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let Some((_, items)) = &module.content else {
            return;
        };
        self.module.push(ident_text(&module.ident));
        self.read(items, |reader| visit::visit_item_mod(reader, module));
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_re_export = !matches!(item.vis, syn::Visibility::Inherited);
        let mut leaves = Vec::new();
        self.use_tree(&item.tree, &mut Vec::new(), &mut leaves);
        for (written, name, span) in leaves {
            let path = self.rooted(&written);
            // A module re-exports what its own children define: that is what it is for.
            if !(is_re_export && path.starts_with(&self.module)) {
                let (path, line) = (path.clone(), span.start().line);
                self.here().paths.push(Named { path, line });
            }
            self.here().brought_in.insert(name, path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let written: Segments = segments.map(|segment| ident_text(&segment.ident)).collect();
        self.path(&written, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.tokens(list.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(module: &[&str], text: &str) -> Vec<String> {
        let module = module.iter().map(|s| (*s).to_owned()).collect();
        let found = find(&[], module, text);
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
    fn a_path_that_begins_with_a_child_counts() {
        let text = "mod c; fn f() { c::g(); d::h(); m!(c::i) }";
        assert_eq!(named(&["x"], text), ["x::c::g", "x::c::i"]);
    }

    #[test]
    fn an_inline_module_is_a_module() {
        let text = "mod inner { use super::A; fn f() { super::g() } } use super::B;";
        assert_eq!(named(&["x", "y"], text), ["x::B", "x::y::A", "x::y::g"]);
    }

    #[test]
    fn paths_in_macros_and_attributes_count() {
        let text = "
            macro_rules! m { () => { $crate::a::A; pub(crate) use $crate::{b, c}; } }
            #[derive(crate::d::D)] struct S;
            fn f() { m!(x = crate::e::E { y: m!(super::F) }); }";
        assert_eq!(
            named(&["x", "y"], text),
            ["b", "c", "a::A", "d::D", "e::E", "x::F"]
        );
    }

    #[test]
    fn comments_and_literals_are_no_paths() {
        let text = r###"
            /// crate::a
            fn f() { let s = "crate::b"; let r = r#"crate::c"#; m!("crate::d" /* crate::e */); }
            fn g() -> crate::h::H {} // crate::i
        "###;
        assert_eq!(named(&["x"], text), ["h::H"]);
    }

    #[test]
    fn what_is_for_tests_alone_does_not_count() {
        let text = "
            #[cfg(test)] use crate::{a, b};
            #[cfg(all(test, unix))] #[allow(x)] mod tests { use crate::c; }
            #[cfg(test)] mod more;
            #[cfg(not(test))] use crate::d;
            #[cfg(feature = \"testing\")] use crate::e;
            struct S { #[cfg(test)] s: crate::f::F }
            pub use child::F;";
        assert_eq!(named(&["x"], text), ["d", "e"]);
        let found = find(&[], vec!["x".to_owned()], text);
        assert_eq!(found.for_tests.len(), 2);
        assert_eq!(found.test_lines, [2..=2, 3..=3, 4..=4, 7..=7]);
    }
}
