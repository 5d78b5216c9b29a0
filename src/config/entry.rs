//! [`Entry`]: one value, and where it stands. [`Section`]: what is said of one manager.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use toml::Value;

use super::field;
use super::located;
use crate::model::error::{Error, ErrorKind};

/// Where a value stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// In a file, at a line and a column that are counted from 1.
    File(Arc<str>, usize, usize),
    /// In a variable of the environment.
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
    /// The name that it was given under, with its table: `managers.orders.own_second`.
    pub(super) written: String,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// What is said of one manager, by the names of the fields.
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

    /// Adds a value under the name that people gave it.
    pub(super) fn add(&mut self, name: &str, entry: Entry) -> Result<(), Error> {
        let (field, entry) = field::read(name, entry)?;
        if let Some(other) = self.0.get(field) {
            let told = format!(
                "it is said twice: other={} at {}; leave one of the two out",
                other.written, other.origin
            );
            return Err(located(
                &entry.origin,
                &entry.written,
                ErrorKind::Invalid,
                told,
            ));
        }
        self.0.insert(field, entry);
        Ok(())
    }

    /// This section, and from `beneath` what it does not say itself.
    pub(super) fn over(&self, beneath: &Self) -> Self {
        let mut all = beneath.0.clone();
        all.extend(self.0.iter().map(|(field, entry)| (*field, entry.clone())));
        Self(all)
    }
}
