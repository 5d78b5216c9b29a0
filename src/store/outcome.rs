//! What a store answers: expected outcomes are data, not errors.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::claim::{Grant, Proof};
use crate::error::Error;
use crate::holder::Label;
use crate::key::Key;
use crate::token::FencingToken;

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
    Extended(Proof),
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
    /// Not released, on purpose: a step or a commit under it is in doubt, and the TTL ends it, so that a late effect has
    /// that long to land.
    Withheld,
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
pub struct Record {
    /// The lock.
    pub key: Key,
    /// The holder's name for people, if the store keeps it.
    pub label: Option<Label>,
    /// The token of its grant, if the store keeps it.
    pub token: Option<FencingToken>,
    /// What is left of the hold as the store counts it, if it says.
    pub remaining: Option<Duration>,
}

impl Record {
    /// A record of a held lock of which nothing else is known.
    #[must_use]
    pub fn of(key: Key) -> Self {
        Self {
            key,
            label: None,
            token: None,
            remaining: None,
        }
    }
}
