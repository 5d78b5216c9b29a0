//! The answers of a store: expected outcomes are data, not errors.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::claim::{Grant, GrantProof, LockMode};
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// The answer to one attempt to acquire.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "a grant that is dropped stays locked until its ttl ends"]
pub enum Acquired {
    /// The lock is ours.
    Granted(Grant),
    /// Another claim holds it.
    Busy {
        /// The remaining time of the holder, if the store reports it. A retry after this time may
        /// succeed.
        remaining: Option<Duration>,
    },
    /// The store grants nothing yet, to anybody: it restarted or lost its data, and may have
    /// forgotten locks whose leases are still live. A claim that queues may have a place, as after
    /// [`Busy`](Self::Busy).
    NotReady {
        /// For how long the store grants nothing.
        retry_after: Duration,
    },
}

/// The answer for one grant of a renewal batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "a renewal that was not proven is no renewal"]
pub enum Renewed {
    /// The store compared the owner token and extended the time.
    Extended(GrantProof),
    /// The lock is not ours any more.
    Gone,
    /// No answer, or one that proves nothing. A retry may succeed.
    Unknown(Error),
}

/// The answer to a release.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Released {
    /// The lock was ours, and is free now.
    Released,
    /// The lock was not ours any more; nothing was changed.
    AlreadyGone,
    /// No answer. The manager retries in the background until the release is confirmed or the TTL
    /// is over.
    Unknown(Error),
    /// Not released, on purpose, so that a late effect has time to arrive: if the store still keeps
    /// the lock, its TTL ends it. A lock that the store has already lost
    /// ([`Ended::Gone`](crate::Ended::Gone)) may have its next holder by then.
    Withheld {
        /// Why it was not released.
        why: Withheld,
    },
}

/// Why a lock was not released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Withheld {
    /// A step or a commit under it is in doubt.
    InDoubt,
    /// A run, or a compensation, was still in progress when the lease ended.
    RunInProgress,
    /// It lapsed, and its lock delay keeps the next holder out.
    LockDelay,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InDoubt => "a step or a commit under it is in doubt",
            Self::RunInProgress => "a run was still in progress when its lease ended",
            Self::LockDelay => "it lapsed, and its lock delay keeps the next holder out",
        })
    }
}

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released"),
            Self::AlreadyGone => f.write_str("the lock was not ours any more"),
            Self::Unknown(_) => f.write_str("the release was not confirmed"),
            Self::Withheld { why } => {
                write!(f, "not released, its ttl ends it: {why}")
            }
        }
    }
}

/// How a lock is taken away from its holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Revoke {
    /// Nobody is granted the key before the time of the revoked hold is over. Its lease ends before
    /// the next one begins, even if the holder does not notice the revocation.
    AfterTtl,
    /// The key is free at once, also if an earlier [`AfterTtl`](Self::AfterTtl) bars it: the answer
    /// is then [`NotHeld`](Revoked::NotHeld). The old holder, of the earlier revocation too, may
    /// continue until its next heartbeat or its deadline: **two may act** during that time, and
    /// only a fence at the resource prevents a conflict.
    Now,
}

/// The answer to a revocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "it says when the next holder may enter"]
pub enum Revoked {
    /// The lock was taken away from its holders.
    Revoked {
        /// How long nobody is granted the key. Zero after [`Revoke::Now`].
        free_in: Duration,
    },
    /// Nobody held it.
    NotHeld,
}

/// Resolves when a retry may succeed: early, late or never. That proves nothing, unless it resolves
/// with a grant.
///
/// A store that hands a lock over may say so together with the proof. The claim need not ask then.
/// If it asks all the same, it is granted the same again.
#[must_use = "a hint that is dropped wakes nobody"]
pub struct Hint(BoxFuture<'static, Option<Grant>>);

impl Hint {
    /// Makes a hint that resolves with `future`, without a grant.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::granting(async move {
            future.await;
            None
        })
    }

    /// Makes a hint that resolves with `future`, and perhaps with the grant of the claim that
    /// subscribed. The proof of such a grant says since when it counts ([`GrantProof::sent_at`]).
    pub fn granting(future: impl Future<Output = Option<Grant>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Makes a hint that never resolves, for a store that cannot wake waiters. Its callers poll.
    pub fn never() -> Self {
        Self::new(std::future::pending())
    }
}

impl Future for Hint {
    type Output = Option<Grant>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hint")
    }
}

/// What a store reports about a lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock.
    pub key: Key,
    /// The holder's name, if the store keeps it.
    pub label: Option<Label>,
    /// The token of its grant, if the store keeps it.
    pub token: Option<FencingToken>,
    /// The remaining time of the hold by the store's clock, if the store reports it.
    pub remaining: Option<Duration>,
    /// For how long the latest holder has had its grant, by the store's clock, if the store knows
    /// it ([which do](crate::docs::stores#capabilities)). A handoff within a process goes on with
    /// the same grant.
    pub held_for: Option<Duration>,
    /// Whether [`held_for`](Self::held_for) is only near the truth, because the store did not read
    /// its clock for the grant.
    pub held_for_is_estimate: bool,
    /// How long ago the latest holder asked for the lock, by the store's clock, if the store knows
    /// that and not `held_for`: it may have waited since.
    pub asked_ago: Option<Duration>,
    /// How the lock is held, if the store reports it.
    pub mode: Option<LockMode>,
    /// The number of holders: several if they are readers, zero while a revoked hold's time runs
    /// out, while the key rests, or while the next in line is called. The other fields describe the
    /// latest holder.
    pub holders: usize,
    /// Whether the key [rests](super::Store::rest) after the release of its last holder, for the
    /// remaining time.
    pub is_resting: bool,
    /// The number of claims in the store's queue, if the store reports it.
    pub queue: Option<usize>,
    /// The names of all holders that have one in the store, in the order of their tokens: of
    /// readers the first [`MAX_LABELS`](Self::MAX_LABELS). [`list`](super::Store::list) leaves it
    /// empty.
    pub labels: Vec<Label>,
    /// The claims in the store's queue, in its order: the first [`MAX_WAITERS`](Self::MAX_WAITERS).
    /// Empty if the store keeps no queue. [`list`](super::Store::list) leaves it empty.
    pub waiters: Vec<Waiter>,
}

/// A claim that waits in a store's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Its name, if the store keeps it.
    pub label: Option<Label>,
    /// How it will hold the lock, if the store reports it.
    pub mode: Option<LockMode>,
}

impl Waiter {
    /// Describes a claim that waits.
    #[must_use]
    pub const fn new(label: Option<Label>, mode: Option<LockMode>) -> Self {
        Self { label, mode }
    }
}

impl LockInfo {
    /// The most [`labels`](Self::labels) that a store reports.
    pub const MAX_LABELS: usize = 1024;

    /// The most [`waiters`](Self::waiters) that a store reports; [`queue`](Self::queue) counts all.
    pub const MAX_WAITERS: usize = 64;

    /// The same, as one of many in a list.
    #[must_use]
    pub(crate) fn in_list(self) -> Self {
        Self {
            labels: Vec::new(),
            waiters: Vec::new(),
            ..self
        }
    }

    /// Describes a lock with one holder, of which nothing else is known.
    #[must_use]
    pub fn of(key: Key) -> Self {
        Self {
            key,
            label: None,
            token: None,
            remaining: None,
            held_for: None,
            held_for_is_estimate: false,
            asked_ago: None,
            mode: None,
            holders: 1,
            is_resting: false,
            queue: None,
            labels: Vec::new(),
            waiters: Vec::new(),
        }
    }
}
