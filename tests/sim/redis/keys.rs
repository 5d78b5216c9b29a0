//! [`Keys`]: the keys of a server: strings, hashes and sorted sets, each with an end in
//! milliseconds.

use std::collections::BTreeMap;

/// A field of a hash, and its value.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

/// What a key has.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Text(Vec<u8>),
    /// In the order in which the fields came.
    Hash(Vec<Field>),
    /// By score, then by member.
    Sorted(Vec<(f64, Vec<u8>)>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// The last millisecond in which it is there.
    pub(crate) end: Option<i64>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Keys(BTreeMap<Vec<u8>, Entry>);

impl Keys {
    /// What is there at a time in milliseconds.
    pub(crate) fn get(&self, name: &[u8], now: i64) -> Option<&Entry> {
        let entry = self.0.get(name);
        entry.filter(|entry| entry.end.is_none_or(|end| now <= end))
    }

    pub(crate) fn get_mut(&mut self, name: &[u8], now: i64) -> Option<&mut Entry> {
        self.get(name, now)?;
        self.0.get_mut(name)
    }

    pub(crate) fn put(&mut self, name: &[u8], value: Value, end: Option<i64>) {
        self.0.insert(name.to_vec(), Entry { value, end });
    }

    /// True if it was there.
    pub(crate) fn remove(&mut self, name: &[u8], now: i64) -> bool {
        let was_there = self.get(name, now).is_some();
        self.0.remove(name);
        was_there
    }

    pub(crate) fn live(&self, now: i64) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        let is_live = move |entry: &Entry| entry.end.is_none_or(|end| now <= end);
        self.0.iter().filter(move |(_, entry)| is_live(entry))
    }
}
