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
        /// The remaining time of the holder, if the store reports it. A retry after this time may succeed.
        remaining: Option<Duration>,
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
    /// No answer. The manager retries in the background until the release is confirmed or the TTL is over.
    Unknown(Error),
    /// Not released, on purpose: a step or a commit under it is in doubt, a run under it had not ended when its lease did, or
    /// it lapsed and there is a lock delay. If the store still keeps the lock, its TTL ends it, so a late effect has that
    /// long to arrive. A lock that the store has already lost ([`LostReason::Gone`](crate::LostReason::Gone)) may have its
    /// next holder by then.
    Withheld,
}

/// How a lock is taken away from its holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Revoke {
    /// Nobody is granted the key before the time of the revoked hold is over. Its lease ends before the next one begins,
    /// even if the holder does not notice the revocation.
    AfterTtl,
    /// The key is free at once. The old holder may continue until its next heartbeat or its deadline: **two may act** during
    /// that time, and only a fence at the resource prevents a conflict.
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

/// Resolves when a retry may succeed: early, late or never. A hint proves nothing.
#[must_use = "a hint that is dropped wakes nobody"]
pub struct Hint(BoxFuture<'static, ()>);

impl Hint {
    /// Makes a hint that resolves with `future`.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Makes a hint that never resolves, for a store that cannot wake waiters. Its callers poll.
    pub fn never() -> Self {
        Self::new(std::future::pending())
    }
}

impl Future for Hint {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
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
    /// How the lock is held, if the store reports it.
    pub mode: Option<LockMode>,
    /// The number of holders: several if they are readers, zero while a revoked hold's time runs out. The other fields
    /// describe the latest holder.
    pub holders: usize,
    /// The number of claims in the store's queue, if the store reports it.
    pub queue: Option<usize>,
}

impl LockInfo {
    /// Describes a lock with one holder, of which nothing else is known.
    #[must_use]
    pub fn of(key: Key) -> Self {
        Self {
            key,
            label: None,
            token: None,
            remaining: None,
            mode: None,
            holders: 1,
            queue: None,
        }
    }
}
