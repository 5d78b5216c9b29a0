//! [`Claim`]: one request to hold, in a [`LockMode`]. [`Grant`]: the store's yes.

use std::fmt;
use std::time::Duration;

use crate::clock::Stamp;
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// What a claim wants of a key: to be alone, or to share it with its like.
///
/// | | exclusive | read | write |
/// |---|---|---|---|
/// | **exclusive** | no | no | no |
/// | **read** | no | together | no |
/// | **write** | no | no | no |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum LockMode {
    /// Alone. Who waits has no place in the store, unless the claim [is fair](Claim::is_fair).
    #[default]
    Exclusive,
    /// Together with other readers. It queues: a reader waits behind every writer that came before it.
    Read,
    /// Alone. It queues.
    Write,
}

impl LockMode {
    /// Whether two claims in these modes may hold one key at a time.
    #[must_use]
    pub const fn goes_with(self, other: Self) -> bool {
        matches!((self, other), (Self::Read, Self::Read))
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

/// One request to hold a lock: what a store needs to know to answer, to withdraw, and to wake.
///
/// A claim may be put to the store many times while its caller waits; it stays one request, by its owner token.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The lock.
    pub key: Key,
    /// The secret that names this request, new for each.
    pub owner: OwnerToken,
    /// The holder's name for people.
    pub label: Label,
    /// What the store is asked to keep the lock for without a renewal.
    pub ttl: Duration,
    /// Alone or with others.
    pub mode: LockMode,
    /// Whether an exclusive claim queues too: first come, first served over all processes.
    pub is_fair: bool,
    /// How long the store keeps the claim's place in the queue when it does not ask again. A place is a short lease of its
    /// own, so that a waiter who died does not block those behind it. Zero for a claim that asks once: it takes no place.
    pub place_ttl: Duration,
}

impl Claim {
    /// A claim for the exclusive lock, which takes no place in a queue. A place, should the claim be made fair, is kept for
    /// its TTL.
    #[must_use]
    pub fn new(key: Key, owner: OwnerToken, label: Label, ttl: Duration) -> Self {
        Self {
            key,
            owner,
            label,
            ttl,
            mode: LockMode::Exclusive,
            is_fair: false,
            place_ttl: ttl,
        }
    }

    /// Whether the claim, told to wait, is to have a place in the store's queue.
    #[must_use]
    pub fn queues(&self) -> bool {
        self.is_fair || self.mode != LockMode::Exclusive
    }
}

/// The store's yes to a claim.
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
    /// A grant of a claim.
    pub fn new(claim: Claim, token: FencingToken, proof: GrantProof) -> Self {
        Self {
            claim,
            token,
            proof,
        }
    }
}

/// What a store's linearizable answer proves: the lock is ours for `ttl`, counted from `sent_at` (I3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GrantProof {
    /// What the store granted, which may be less than it was asked for.
    pub ttl: Duration,
    /// When the count starts, where that is earlier than the sending of this request (ZooKeeper). `None`: the caller
    /// counts from its own reading before the request.
    pub sent_at: Option<Stamp>,
}

impl GrantProof {
    /// Proof for `ttl` from the sending of this request.
    #[must_use]
    pub const fn of(ttl: Duration) -> Self {
        Self { ttl, sent_at: None }
    }

    /// Proof for `ttl` from an earlier instant.
    #[must_use]
    pub const fn since(ttl: Duration, sent_at: Stamp) -> Self {
        Self {
            ttl,
            sent_at: Some(sent_at),
        }
    }
}
