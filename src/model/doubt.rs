//! [`Doubt`] and [`Resolution`]: a commit whose outcome is unknown, and what became of it.

use crate::model::commit::HeldKey;
use crate::model::txn::TxnId;

/// A commit that was sent and not answered: what [`Resolve`](crate::fence::Resolve) needs to find out what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// The locks of the run, as the commit was given them: in order of key.
    pub locks: Vec<HeldKey>,
    /// The run's name, as the commit was given it.
    pub txn_id: TxnId,
}

impl Doubt {
    /// The doubt about a commit whose locks and name come from the log or from another process.
    #[must_use]
    pub fn new(locks: Vec<HeldKey>, txn_id: TxnId) -> Self {
        let mut locks = locks;
        locks.sort_unstable();
        Self { locks, txn_id }
    }
}

/// What became of a commit in doubt. Both are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It is applied.
    Applied,
    /// It is not applied, and never will be: a copy of it that arrives later is refused.
    NotApplied,
}
