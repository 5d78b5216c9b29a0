//! What a store answers: expected outcomes are data, not errors.

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
    /// Somebody else holds it.
    Busy {
        /// What the store says is left of the holder's time, if it says: when asking again may pay at the latest.
        remaining: Option<Duration>,
    },
}

/// The answer for one grant of a renewal batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "a renewal that was not proven is no renewal"]
pub enum Renewed {
    /// The store compared and extended.
    Extended(GrantProof),
    /// The lock is not ours any more.
    Gone,
    /// No answer, or one that proves nothing: asking again may pay.
    Unknown(Error),
}

/// The answer to a release.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "a release that is not confirmed may leave the lock until its ttl ends"]
pub enum Released {
    /// The lock was ours and is free now.
    Released,
    /// It was not ours any more; nothing was changed.
    AlreadyGone,
    /// No answer. It is asked again in the background until it is confirmed or the TTL is over.
    Unknown(Error),
    /// Not released, on purpose: a step or a commit under it is in doubt, a run under it had not ended when its lease did, or
    /// it lapsed and there is a lock delay. If the store still keeps the lock, its TTL ends it, so that a late effect has
    /// that long to land; a lock that the store has lost already ([`LostReason::Gone`](crate::LostReason::Gone)) may have its
    /// next holder by then.
    Withheld,
}

/// How a lock is taken away from its holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Revoke {
    /// Nobody is granted the key before the time of the hold that was taken away is over: its lease ends before the next
    /// begins, also if the holder does not hear of it.
    AfterTtl,
    /// The key is free at once. The holder may go on until its next heartbeat or its deadline: **two may act** in that time,
    /// and only a fence at the resource keeps them apart.
    Now,
}

/// The answer to a revocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "it says when the next holder may enter"]
pub enum Revoked {
    /// It was taken away from whoever held it.
    Revoked {
        /// How long nobody is granted the key; zero after [`Revoke::Now`].
        free_in: Duration,
    },
    /// Nobody held it.
    NotHeld,
}

/// Resolves when asking again may pay: early, late or never. A hint proves nothing.
#[must_use = "a hint that is dropped wakes nobody"]
pub struct Hint(BoxFuture<'static, ()>);

impl Hint {
    /// A hint that resolves with `future`.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// A hint that never resolves: the store cannot wake, and its callers poll.
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

/// What a store tells of a lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock.
    pub key: Key,
    /// The holder's name for people, if the store keeps it.
    pub label: Option<Label>,
    /// The token of its grant, if the store keeps it.
    pub token: Option<FencingToken>,
    /// What is left of the hold as the store counts it, if it says.
    pub remaining: Option<Duration>,
    /// How it is held, if the store says.
    pub mode: Option<LockMode>,
    /// How many hold it: more than one reader may; nobody does while a revoked hold's time runs out. The other fields are
    /// those of the holder that came last.
    pub holders: usize,
    /// How many claims wait in the store's queue, if the store says.
    pub queue: Option<usize>,
}

impl LockInfo {
    /// A record of a lock that one claim holds, of which nothing else is known.
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
