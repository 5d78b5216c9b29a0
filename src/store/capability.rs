//! [`Capability`]: what a store supports. The conformance suite tests exactly that.

use std::time::Duration;

/// Which stores of this crate support a kind of lock, for the messages of those that do not.
pub(crate) const FAIR_STORES: &str =
    "MemoryStore, FileStore, RedisStore, PostgresStore and ZooKeeperStore";
pub(crate) const READ_WRITE_STORES: &str =
    "MemoryStore, FileStore, RedisStore, PostgresStore and ZooKeeperStore";
pub(crate) const REVOKING_STORES: &str =
    "MemoryStore, FileStore, RedisStore, PostgresStore, ZooKeeperStore and KubernetesStore";
pub(crate) const SHARING_STORES: &str =
    "MemoryStore, FileStore, RedisStore, PostgresStore and ZooKeeperStore";
pub(crate) const RESTING_STORES: &str = "MemoryStore, FileStore, RedisStore and PostgresStore";

/// Whether a store guarantees that its tokens grow (I8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Fencing {
    /// Tokens may repeat or go back: a fence cannot use them.
    None,
    /// Each grant of a key has a larger token than every earlier one, over restarts.
    Monotonic,
}

/// Whether a store keeps a queue of those that wait for a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Queue {
    /// No claim has a place. Whoever asks first after a release is granted the key.
    None,
    /// Every claim that has to wait keeps a place until it is granted or withdrawn. Claims are
    /// served in the order of arrival.
    Places,
    /// The same, and a release, a withdrawal or the end of a TTL grants the key to the next live
    /// place in the same step, for a short handover time. Only that claim is woken; of readers, all
    /// up to the next writer. It asks again, and then holds for its full TTL under the same token;
    /// or its [hint](super::Hint) is the grant.
    Handover,
}

/// What a store supports. [The table of all stores](crate::docs::stores#capabilities) is in the
/// guide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capability {
    /// Whether tokens grow. A store decides it when it connects, by what its servers are then.
    pub fencing: Fencing,
    /// Whether the hints of [`subscribe`](super::Store::subscribe) wake waiters. If not, callers
    /// poll.
    pub wakes: bool,
    /// Whether the store uses each claim's own TTL. If not, it has one for all.
    pub ttl_per_lock: bool,
    /// Who is served next.
    pub queue: Queue,
    /// Whether all claims of a process for one key share a subscription that needs no place in the
    /// queue. The manager then subscribes before it takes a place, so that it need not ask once
    /// more after it has subscribed.
    pub subscribes_first: bool,
    /// Whether claims can read or write ([`LockMode`](super::LockMode)), and a writer can become a
    /// reader. It needs a queue.
    pub read_write: bool,
    /// Whether readers can hold a key in parts ([`Share`](super::Share)). It needs read and write
    /// modes.
    pub shares: bool,
    /// Whether an operator can take a lock away ([`revoke`](super::Store::revoke)).
    pub revokes: bool,
    /// Whether a release can let the key [rest](super::Store::rest).
    pub rests: bool,
    /// How often the manager renews grants; `None` for its own choice, a third of the TTL.
    pub heartbeat: Option<Duration>,
    /// Whether [`inspect`](super::Store::inspect) reports the holder's label and token.
    pub reports_holder: bool,
    /// Whether the store has no clock, so that a hold which nobody renews ends only for a client
    /// that has seen it unchanged for its whole TTL. A client that finds a dead holder waits that
    /// long from its first request on, and one that asks once is refused.
    pub observes_expiry: bool,
}

impl Capability {
    /// The minimum that every store supports: exclusion, expiry, compare-and-release.
    #[must_use]
    pub const fn least() -> Self {
        Self {
            fencing: Fencing::None,
            wakes: false,
            ttl_per_lock: false,
            queue: Queue::None,
            subscribes_first: false,
            read_write: false,
            shares: false,
            revokes: false,
            rests: false,
            heartbeat: None,
            reports_holder: false,
            observes_expiry: false,
        }
    }

    /// What a store supports that keeps one queue for each key, for every kind of lock.
    pub(crate) const fn queued() -> Self {
        Self {
            fencing: Fencing::Monotonic,
            wakes: true,
            ttl_per_lock: true,
            queue: Queue::Handover,
            read_write: true,
            revokes: true,
            rests: true,
            reports_holder: true,
            ..Self::least()
        }
    }

    /// Whether claims are served in the order of arrival.
    #[must_use]
    pub const fn is_fair(&self) -> bool {
        !matches!(self.queue, Queue::None)
    }
}
