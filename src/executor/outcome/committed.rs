//! [`Committed`]: the run committed, and what that claim rests on.

use std::sync::Arc;
use std::time::Duration;

use crate::model::commit::{self, HeldKey};
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// The run committed, and every effect of it happened within the lease or was accepted by a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the work returned.
    pub value: T,
    /// The fencing token that the run was under; of a run under several locks, that of the first key in their order. See
    /// [`token_of`](Self::token_of).
    pub token: FencingToken,
    /// What was left of the lease when the commit began.
    pub slack: Duration,
    /// What the claim rests on.
    pub proof: CommitProof,
    pub(crate) locks: Arc<[HeldKey]>,
}

impl<T> Committed<T> {
    /// What the work returned.
    pub fn into_value(self) -> T {
        self.value
    }

    /// The keys and fencing tokens of all locks that the run was under, sorted by key; never empty.
    #[must_use]
    pub fn locks(&self) -> &[HeldKey] {
        &self.locks
    }

    /// The fencing token of the lock of one key, of those that the run was under.
    ///
    /// # Errors
    ///
    /// `Invalid` if the run was not under a lock of the key.
    pub fn token_of(&self, key: &str) -> Result<FencingToken, Error> {
        commit::token_of(&self.locks, key)
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
    /// The effects are [`GuardedCell`](crate::GuardedCell)s of this process, which compare tokens themselves, and the lease was
    /// live after they were published.
    Local,
}

/// What a hook of [`on_committed`](crate::Tx::on_committed) receives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The fencing token that the run was under; of a run under several locks, that of the first key in their order. See
    /// [`token_of`](Self::token_of).
    pub token: FencingToken,
    /// The run's identifier, if one was made.
    pub txn_id: Option<TxnId>,
    /// What was left of the lease when the commit began.
    pub slack: Duration,
    /// What the claim rests on; `None` if the commit came late ([`CommittedLate`](super::RunError::CommittedLate)).
    pub proof: Option<CommitProof>,
    pub(crate) locks: Arc<[HeldKey]>,
}

impl Receipt {
    /// The keys and fencing tokens of all locks that the run was under, sorted by key; never empty.
    #[must_use]
    pub fn locks(&self) -> &[HeldKey] {
        &self.locks
    }

    /// The fencing token of the lock of one key, of those that the run was under.
    ///
    /// # Errors
    ///
    /// `Invalid` if the run was not under a lock of the key.
    pub fn token_of(&self, key: &str) -> Result<FencingToken, Error> {
        commit::token_of(&self.locks, key)
    }
}
