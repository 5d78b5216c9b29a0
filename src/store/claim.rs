//! [`Claim`]: one request to hold, in a [`LockMode`]. [`Grant`]: the store's positive answer.

use std::fmt;
use std::time::Duration;

use crate::clock::{ClockKind, Stamp};
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// How a claim wants to hold a key: alone, or together with others.
///
/// Only two readers can hold a key at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum LockMode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with other readers. A reader waits for every earlier writer.
    Read,
    /// Alone, and it may become a reader.
    Write,
}

impl LockMode {
    /// Whether claims in these two modes may hold one key at the same time.
    #[must_use]
    pub const fn is_compatible_with(self, other: Self) -> bool {
        matches!((self, other), (Self::Read, Self::Read))
    }
}

/// A part of a key: `permits` of `of`. It makes a reader the holder of some of a semaphore's
/// permits.
///
/// Only in the mode [`Read`](LockMode::Read), and only where the
/// [capability](super::Capability::shares) says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Share {
    /// How many permits the claim takes, all or none.
    pub permits: u32,
    /// How many permits there are, as this claim says. No other claim has to say the same.
    pub of: u32,
}

impl Share {
    /// Whether so many are free beside those that are `taken`.
    #[must_use]
    pub const fn fits(&self, taken: u64) -> bool {
        taken.saturating_add(self.permits as u64) <= self.of as u64
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// One request to hold a lock: what a store needs in order to answer it, withdraw it and wake it.
///
/// The manager may send a claim many times while its caller waits. The owner token shows that it is
/// one request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The lock.
    pub key: Key,
    /// The secret that names this request, new for each.
    pub owner: OwnerToken,
    /// The holder's name, for people.
    pub label: Label,
    /// How long the store keeps the lock without a renewal.
    pub ttl: Duration,
    /// Alone or with others.
    pub mode: LockMode,
    /// The part that it takes, if it is a reader that does not share the whole key.
    pub share: Option<Share>,
    /// How long the store keeps the claim's place in the queue without a further request. A place
    /// is a short lease of its own, so a waiter that died does not block those behind it. Zero for
    /// a claim that is sent once: it takes no place.
    pub place_ttl: Duration,
}

impl Claim {
    /// Makes a claim for the exclusive lock. If it gets a place in a [queue](super::Queue), the
    /// place is kept for its TTL.
    #[must_use]
    pub fn new(key: Key, owner: OwnerToken, label: Label, ttl: Duration) -> Self {
        Self {
            key,
            owner,
            label,
            ttl,
            mode: LockMode::Exclusive,
            share: None,
            place_ttl: ttl,
        }
    }

    /// As what it waits: a share waits for every earlier place, so whoever wants many permits is
    /// not passed by those that want few.
    pub(crate) const fn waits_as(&self) -> LockMode {
        match self.share {
            Some(_) => LockMode::Exclusive,
            None => self.mode,
        }
    }
}

/// The store's positive answer to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "a grant that is dropped stays locked until its ttl ends"]
pub struct Grant {
    /// The claim that was granted.
    pub claim: Claim,
    /// Larger than that of every earlier grant of this key, if the store's capability says so.
    pub token: FencingToken,
    /// For how long, and counted from when.
    pub proof: GrantProof,
}

impl Grant {
    /// Makes a grant of a claim. A proof that counts from the request proves no more than the
    /// claim's TTL, whatever the store answers: by a clock that was set back, more may be left of a
    /// grant, and a renewal makes it shorter again.
    pub fn new(claim: Claim, token: FencingToken, mut proof: GrantProof) -> Self {
        if proof.sent_at.is_none() {
            proof.ttl = proof.ttl.min(claim.ttl);
        }
        Self {
            claim,
            token,
            proof,
        }
    }
}

/// What a store's linearizable answer proves: the lock is ours for `ttl`, counted from `sent_at`
/// (I3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GrantProof {
    /// What the store granted, which may be less than the claim's TTL.
    pub ttl: Duration,
    /// When the count starts, if that is before this request was sent (ZooKeeper). `None`: the
    /// caller counts from its own reading of the clock before the request.
    pub sent_at: Option<Stamp>,
}

impl GrantProof {
    /// A proof for `ttl`, counted from the sending of this request.
    #[must_use]
    pub const fn of(ttl: Duration) -> Self {
        Self { ttl, sent_at: None }
    }

    /// The same by a server that counts whole milliseconds.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn in_millis(ttl: Duration) -> Self {
        Self::of(Duration::from_millis(
            u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
        ))
    }

    /// What is left of it at `sent_at`, by the clock of ours that has gone the furthest since its
    /// count started.
    pub(crate) fn left_at(&self, sent_at: &Stamp) -> Duration {
        let since = |from: Stamp| {
            let on_each = ClockKind::ALL.map(|lane| sent_at.on(lane).saturating_sub(from.on(lane)));
            Duration::from_nanos(on_each.into_iter().max().unwrap_or_default())
        };
        self.ttl
            .saturating_sub(self.sent_at.map_or(Duration::ZERO, since))
    }

    /// A proof for `ttl`, counted from an earlier instant.
    #[must_use]
    pub const fn since(ttl: Duration, sent_at: Stamp) -> Self {
        Self {
            ttl,
            sent_at: Some(sent_at),
        }
    }
}
