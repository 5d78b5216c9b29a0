//! [`Crowds`]: the states of long queues that this process has read or written last.
//!
//! Reading a queue of hundreds costs a hundred times as much as a step on it. So a process
//! remembers the state, and the first page of the slot in which it is: the [mark](Mark). A step
//! that finds the same page under its lock on the file need not read the rest.
//!
//! **Why that is the same state.** The page has the sequence of the write and the checksum of all
//! of it. Within the life of a file no two whole writes have the same sequence. It also has the
//! last token of the key. In each life of a file somebody is granted the key before others queue,
//! with a larger token than in every life before it (I8). A write that was cut off is never
//! remembered, because the process that remembers a write has seen all of it.

use parking_lot::Mutex;

use super::codec::Record;
use super::slots::Mark;
use crate::model::key::Key;

/// How many queues are remembered, each with up to a thousand claims.
const MOST: usize = 4;

/// A state and where it is.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) mark: Mark,
    pub(super) record: Record,
}

/// The long queues, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct Crowds(Mutex<Vec<(Key, Known)>>);

impl Crowds {
    /// Forgets the state of a key: whoever takes it may change it.
    pub(super) fn take(&self, key: &Key) -> Option<Known> {
        let mut known = self.0.lock();
        let index = known.iter().position(|(of, _)| of == key)?;
        Some(known.remove(index).1)
    }

    /// Remembers what the file of a key is now.
    pub(super) fn put(&self, key: &Key, state: Known) {
        let mut known = self.0.lock();
        let forgotten = (known.len() == MOST).then(|| known.remove(0));
        known.push((key.clone(), state));
        drop(known);
        drop(forgotten);
    }
}
