//! [`Committed`]: the run committed, and what that claim rests on.

use std::time::Duration;

use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// The run committed, and every effect of it fell within the lease or was accepted by a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it holds the value that the work returned"]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the work returned.
    pub value: T,
    /// The fencing token that the run was under.
    pub token: FencingToken,
    /// What was left of the lease when the commit began.
    pub slack: Duration,
    /// What the claim rests on.
    pub proof: CommitProof,
}

impl<T> Committed<T> {
    /// What the work returned, for who needs no more.
    pub fn into_value(self) -> T {
        self.value
    }
}

/// What the claim of a [`Committed`] run rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommitProof {
    /// The lease was seen live by the strict clocks after the last effect.
    WithinLease,
    /// The resource compared the token and accepted it.
    Fenced,
    /// The effects are [`GuardedCell`](super::GuardedCell) cells of this process, which compare tokens themselves.
    Local,
}

/// What a hook of [`on_committed`](super::Tx::on_committed) is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The fencing token that the run was under.
    pub token: FencingToken,
    /// The run's name, if it was ever asked for.
    pub txn_id: Option<TxnId>,
    /// What was left of the lease when the commit began.
    pub slack: Duration,
    /// What the claim rests on; `None` if the commit came late ([`CommittedLate`](super::RunError::CommittedLate)).
    pub proof: Option<CommitProof>,
}
