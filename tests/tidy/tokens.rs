//! What a stream of tokens holds: the text of macros and attributes, which `syn` does not parse.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::Parser;

/// A path in a stream of tokens, and its line.
pub(crate) struct TokenPath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// What a macro's text names.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) paths: Vec<TokenPath>,
    pub(crate) uses: Vec<syn::ItemUse>,
}

pub(crate) fn contents(tokens: TokenStream) -> Contents {
    let mut contents = Contents::default();
    read(tokens, &mut contents);
    contents
}

fn read(tokens: TokenStream, contents: &mut Contents) {
    // `$crate` is the crate.
    let mut tokens = tokens
        .into_iter()
        .filter(|token| !is_punct(token, '$'))
        .peekable();
    let mut statement = TokenStream::new();
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Ident(ident) if ident == "use" => {
                statement.extend([token]);
                let rest: TokenStream =
                    std::iter::from_fn(|| tokens.next_if(|token| !is_punct(token, ';'))).collect();
                statement.extend(rest.clone());
                statement.extend(tokens.next());
                match syn::parse2(std::mem::take(&mut statement)) {
                    Ok(item) => contents.uses.push(item),
                    Err(_) => read(rest, contents),
                }
            }
            // The visibility before a `use`.
            TokenTree::Ident(ident) if ident == "pub" => {
                statement = TokenStream::from(token);
                let is_scope = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
                statement.extend(tokens.next_if(is_scope));
            }
            TokenTree::Ident(ident) => {
                statement = TokenStream::new();
                let line = ident.span().start().line;
                let mut segments = vec![ident_text(ident)];
                while tokens.next_if(|token| is_punct(token, ':')).is_some() {
                    if let Some(TokenTree::Ident(next)) =
                        tokens.next_if(|token| matches!(token, TokenTree::Ident(_)))
                    {
                        segments.push(ident_text(&next));
                    }
                }
                contents.paths.push(TokenPath { segments, line });
            }
            TokenTree::Group(group) => {
                statement = TokenStream::new();
                read(group.stream(), contents);
            }
            _ => statement = TokenStream::new(),
        }
    }
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

/// A raw identifier is the identifier.
pub(crate) fn ident_text(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").unwrap_or(&text).to_owned()
}

/// The macros that a text calls, also those inside of other macros, each with its line.
pub(crate) fn macros(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    let mut before: Option<(String, usize)> = None;
    for token in tokens {
        if is_punct(&token, '!') {
            found.extend(before.take());
        }
        before = match token {
            TokenTree::Ident(ident) => Some((ident_text(&ident), ident.span().start().line)),
            TokenTree::Group(group) => {
                macros(group.stream(), found);
                None
            }
            _ => None,
        };
    }
}

/// The attributes of an item of any kind.
pub(crate) fn attributes(item: TokenStream) -> Vec<syn::Attribute> {
    let parser = |input: syn::parse::ParseStream<'_>| {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        input.parse::<TokenStream>()?;
        Ok(attributes)
    };
    parser.parse2(item).unwrap_or_default()
}

/// Whether one of them is `#[cfg(test)]`, or `test` beside other conditions.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.clone(),
            _ => return false,
        };
        let names = contents(condition).paths;
        let has = |name: &str| names.iter().any(|path| path.segments == [name]);
        has("test") && !has("not")
    })
}
