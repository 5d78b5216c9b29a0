//! [`Names`]: the names of the last commits under one key, and what became of each.

use std::collections::BTreeMap;

use crate::model::txn::TxnId;

/// What became of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommitRecord {
    /// Its change runs, or panicked.
    Begun,
    Applied,
    Void,
}

/// What a name is before it gets a record.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Absent {
    /// No commit of this name was admitted, and none was voided.
    New,
    /// Its record may have been deleted.
    Forgotten,
}

/// The newest names by their time. All names up to the newest of those that were deleted count as
/// deleted.
#[derive(Debug, Default)]
pub(super) struct Names {
    kept: BTreeMap<TxnId, CommitRecord>,
    forgotten: Option<TxnId>,
}

impl Names {
    pub(super) fn find(&self, name: TxnId) -> Result<CommitRecord, Absent> {
        let is_forgotten = self.forgotten.is_some_and(|last| name <= last);
        let absent = if is_forgotten {
            Absent::Forgotten
        } else {
            Absent::New
        };
        self.kept.get(&name).copied().ok_or(absent)
    }

    pub(super) fn set(&mut self, name: TxnId, record: CommitRecord, limit: usize) {
        self.kept.insert(name, record);
        while self.kept.len() > limit {
            let Some((oldest, _)) = self.kept.pop_first() else {
                return;
            };
            self.forgotten = self.forgotten.max(Some(oldest));
        }
    }
}
