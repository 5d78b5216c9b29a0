//! [`Committed`]: the run committed, and what that claim rests on.

use std::time::Duration;

use crate::model::commit::Locks;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// The run committed, and every effect of it happened within the lease or was accepted by a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the work returned.
    pub value: T,
    /// The fencing token that the run was under; of a run under several locks, that of the first
    /// key in their order.
    pub token: FencingToken,
    /// What was left of the lease when the commit began.
    pub slack: Duration,
    /// What the claim rests on.
    pub proof: CommitProof,
    /// All locks that the run was under.
    pub locks: Locks,
}

impl<T> Committed<T> {
    /// What the work returned.
    pub fn into_value(self) -> T {
        self.value
    }
}

/// What the claim of a [`Committed`] run rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommitProof {
    /// The strict clocks showed the lease live after the last effect.
    WithinLease,
    /// The resource compared the tokens of all locks of the run and accepted them.
    Fenced,
    /// The effects are [`GuardedCell`](crate::GuardedCell)s of this process, which compare tokens
    /// themselves, and the lease was live after they were published.
    Local,
}

/// What a hook of [`on_committed`](crate::Tx::on_committed) receives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The fencing token that the run was under; of a run under several locks, that of the first
    /// key in their order.
    pub token: FencingToken,
    /// The run's identifier, if one was made.
    pub txn_id: Option<TxnId>,
    /// What was left of the lease when the commit began.
    pub slack: Duration,
    /// What the claim rests on; `None` if the commit came late
    /// ([`CommittedLate`](super::RunError::CommittedLate)).
    pub proof: Option<CommitProof>,
    /// All locks that the run was under.
    pub locks: Locks,
}
