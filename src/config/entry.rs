//! [`Entry`]: one value and its position. [`Section`]: the values of one manager.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::model::error::{Error, ErrorKind};

/// The position of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// In a file, at a line and a column, counted from 1.
    File(Arc<str>, usize, usize),
    /// In an environment variable.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name, line, column) => write!(f, "{name}:{line}:{column}"),
            Self::Variable(name) => write!(f, "environment:{name}"),
        }
    }
}

/// One value.
#[derive(Clone)]
pub(super) struct Entry {
    /// The name as written, with its table: `managers.orders.own_second`.
    pub(super) written: String,
    /// Its text. A number, `true` or `false` too: in the environment every value is text.
    pub(super) value: String,
    pub(super) origin: Origin,
}

/// The values of one manager, by field.
#[derive(Clone, Default)]
pub(super) struct Section(BTreeMap<&'static str, Entry>);

impl Section {
    pub(super) fn get(&self, field: &str) -> Option<&Entry> {
        self.0.get(field)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.0.iter().map(|(field, entry)| (*field, entry))
    }

    /// Adds the value of a field.
    pub(super) fn insert(&mut self, field: &'static str, entry: Entry) -> Result<(), Error> {
        if let Some(other) = self.0.get(field) {
            let message = format!(
                "it is set twice: other={} at {}; remove one of the two",
                other.written, other.origin
            );
            return Err(located(
                &entry.origin,
                &entry.written,
                ErrorKind::Invalid,
                message,
            ));
        }
        self.0.insert(field, entry);
        Ok(())
    }

    /// This section, with the values of `beneath` for what it does not set itself.
    pub(super) fn over(&self, beneath: &Self) -> Self {
        let mut all = beneath.0.clone();
        all.extend(self.0.iter().map(|(field, entry)| (*field, entry.clone())));
        Self(all)
    }
}

/// An error at the position of a value.
pub(super) fn located(
    origin: &Origin,
    field: &str,
    kind: ErrorKind,
    what: impl fmt::Display,
) -> Error {
    let what = what.to_string();
    let what = what.strip_prefix(&format!("{kind}: ")).unwrap_or(&what);
    Error::new(kind, in_one_line(&format!("{origin}: {field}: {what}")))
}

/// A name in quotes may contain any character.
fn in_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}
