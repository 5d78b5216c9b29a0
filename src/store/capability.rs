//! [`Capability`]: what a store claims. The conformance suite is exactly as long as the claim.

use std::time::Duration;

/// Which stores of this crate can what: for messages of those that cannot.
pub(crate) const FAIR_STORES: &str = "MemoryStore, RedisStore and ZooKeeperStore";
pub(crate) const READ_WRITE_STORES: &str = "MemoryStore, RedisStore and ZooKeeperStore";
pub(crate) const REVOKING_STORES: &str = "MemoryStore, RedisStore and ZooKeeperStore";

/// Whether a store promises that its tokens grow (I8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Fencing {
    /// Tokens may repeat or go back: no fence can be built on them.
    None,
    /// Each grant of a key has a larger token than every earlier one, over restarts.
    Monotonic,
}

/// What a store claims to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capability {
    /// Whether tokens grow.
    pub fencing: Fencing,
    /// Whether [`subscribe`](super::Store::subscribe) gives hints that wake. Without them callers poll.
    pub wakes: bool,
    /// Whether each claim's own TTL is honoured. Without it the store has one for all.
    pub ttl_per_lock: bool,
    /// Whether a claim that was told to wait keeps a place in the store's queue until it is granted or withdrawn.
    /// Claims are then served in the order in which they came, and every lock is fair.
    pub queues: bool,
    /// Whether a [fair](super::Claim::is_fair) exclusive claim queues in the store, where not every claim does.
    pub fair: bool,
    /// Whether claims may read or write ([`LockMode`](super::LockMode)), and a writer may become a reader.
    pub read_write: bool,
    /// Whether an operator may take a lock away ([`revoke`](super::Store::revoke)).
    pub revokes: bool,
    /// How often grants are to be renewed, where the store knows better than a third of the TTL.
    pub heartbeat: Option<Duration>,
    /// Whether [`inspect`](super::Store::inspect) tells the holder's label and token.
    pub tells_holder: bool,
}

impl Capability {
    /// The least that a store can claim: exclusion, expiry, compare-and-release.
    #[must_use]
    pub const fn least() -> Self {
        Self {
            fencing: Fencing::None,
            wakes: false,
            ttl_per_lock: false,
            queues: false,
            fair: false,
            read_write: false,
            revokes: false,
            heartbeat: None,
            tells_holder: false,
        }
    }

    /// Whether exclusive claims can be served in the order in which they came.
    #[must_use]
    pub const fn is_fair(&self) -> bool {
        self.queues || self.fair
    }
}
