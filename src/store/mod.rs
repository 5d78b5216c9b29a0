//! The seam between the lock manager and what grants locks.
//!
//! A [`Store`] grants a key to one claim at a time, for a TTL that it counts itself, and answers with data. It knows
//! nothing of leases, managers or guarded runs. [`MemoryStore`] is the specification: read it first.
//!
//! A wrapper of a store is a store: [`Prefix`], [`Quorum`] over [members](quorum::Member), and for tests `Faulty` (feature `test-util`), which fails on purpose.

mod capability;
mod claim;
mod erased;
#[cfg(feature = "test-util")]
mod faulty;
mod member;
mod memory;
mod outcome;
mod prefix;
pub mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
pub(crate) mod url;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::fmt::Debug;

pub use capability::{Capability, Fencing};
pub(crate) use capability::{FAIR_STORES, READ_WRITE_STORES, REVOKING_STORES};
pub use claim::{Claim, Grant, GrantProof, LockMode};
pub(crate) use erased::{AnyStore, Erased, erase};
#[cfg(feature = "test-util")]
pub use faulty::{Counts, Faults, Faulty, Operation};
pub(crate) use member::{MAX_SKEW, Member, Raised, Vote};
pub use memory::MemoryStore;
pub use outcome::{Acquired, Hint, LockInfo, Released, Renewed, Revoke, Revoked};
pub use prefix::Prefix;
pub use quorum::Quorum;
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisStore};

pub use crate::model::holder::OwnerToken;

use crate::model::error::Error;
use crate::model::key::Key;

/// Something that grants locks.
///
/// # Contract
///
/// For one key, over all clients of the store:
///
/// 1. **Exclusion.** From a grant until its TTL is over by the store's clock, or until it is released, no other claim is
///    granted.
/// 2. **Atomicity.** A single acquire, renew, release or withdraw takes effect at one instant, or not at all.
/// 3. **Comparison.** Renew, release and withdraw compare the owner token and never touch another claim's lock.
/// 4. **Fencing.** If the capability says [`Fencing::Monotonic`], each grant's token is larger than that of every earlier
///    grant of the key, over restarts (I8).
/// 5. **Honesty.** An answer is given only on proof. A request whose fate is unknown is
///    [`ErrorKind::InDoubt`](crate::ErrorKind::InDoubt); [`Unavailable`](crate::ErrorKind::Unavailable) means that it had
///    no effect and will have none.
/// 6. **Order**, for claims that [queue](Claim::queues), if the capability says that the store can: a claim that was told to
///    wait has a place from its first asking until it is granted or withdrawn, or until it did not ask for its
///    [`place_ttl`](Claim::place_ttl). Nobody is granted past a place that came before and does not
///    [go with](LockMode::goes_with) it; a claim without a place comes after all places. Many dead waiters cost the time of one.
/// 7. **Modes**, if the capability says so: holders whose modes go with each other hold a key together, and each of them
///    lapses, is renewed and is released by itself.
///
/// Every method may be called from many tasks at once, and may be dropped at every await: a dropped request counts as one
/// whose fate is unknown, and the caller withdraws its claim. Callers bound every call in time by dropping it.
pub trait Store: Debug + Send + Sync + 'static {
    /// A short name for messages: `memory`, `redis`. Never an address with a password.
    fn name(&self) -> &'static str;

    /// What this store claims. Does not change in the life of the store.
    fn capability(&self) -> Capability;

    /// One attempt to hold.
    ///
    /// # Contract
    ///
    /// Never waits for the holder: answers [`Acquired::Busy`]. Idempotent for a claim: if the claim holds the lock already
    /// (its first answer was lost), it is granted again with the same token. A claim that was withdrawn is never granted
    /// again, even if the request arrives after the withdrawal.
    ///
    /// # Errors
    ///
    /// `InDoubt` when the claim may have been granted; other kinds when it surely was not.
    fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<Acquired, Error>> + Send;

    /// Extends many grants to a full TTL from now.
    ///
    /// # Contract
    ///
    /// One answer for each grant, in the order of the grants. Compares and extends, never creates. One round trip for
    /// the batch where the store can.
    fn renew(&self, grants: &[Grant]) -> impl Future<Output = Vec<Renewed>> + Send;

    /// Ends a hold.
    ///
    /// # Contract
    ///
    /// Compares and deletes. Idempotent. Wakes who waits. Answers `Released`, `AlreadyGone` or `Unknown`, never
    /// `Withheld`.
    fn release(&self, grant: &Grant) -> impl Future<Output = Released> + Send;

    /// Takes back an attempt whose fate is unknown, and gives up its place in a queue.
    ///
    /// # Contract
    ///
    /// Afterwards the claim does not hold the lock and is never granted it, even if its acquire is executed later.
    /// Idempotent.
    ///
    /// # Errors
    ///
    /// If that could not be made sure: the caller asks again, or lets the TTL end it.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns once subscribed: an end of the current hold after that resolves the hint (or does not: it is a hint).
    ///
    /// # Errors
    ///
    /// If it could not subscribe: the caller polls.
    fn subscribe(&self, claim: &Claim) -> impl Future<Output = Result<Hint, Error>> + Send;

    /// Turns a write hold into a read hold.
    ///
    /// # Contract
    ///
    /// In one step, so that no other writer comes in between; the token and the time stay as they are. The owner token
    /// stays too, and renew, release and withdraw go by it whether they name the mode of before or after. Idempotent. Wakes
    /// who waits. The default cannot.
    ///
    /// # Errors
    ///
    /// `Lost` if the claim does not hold the lock any more; `Unsupported` if the store has no such modes; `InDoubt` if it
    /// may or may not have happened.
    fn downgrade(&self, grant: &Grant) -> impl Future<Output = Result<Grant, Error>> + Send {
        let refused = unsupported(
            self.name(),
            "downgrade",
            &grant.claim.key,
            READ_WRITE_STORES,
        );
        async move { Err(refused) }
    }

    /// Takes a lock away from whoever holds it.
    ///
    /// # Contract
    ///
    /// Afterwards no claim that held the key renews it or is granted it again. With [`Revoke::AfterTtl`] nobody else is
    /// granted it before the holder's time is over. Places in the queue stay. Wakes who waits. The default cannot.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store cannot; `InDoubt` if it may or may not have happened.
    fn revoke(
        &self,
        key: &Key,
        how: Revoke,
    ) -> impl Future<Output = Result<Revoked, Error>> + Send {
        let _ = how;
        let refused = unsupported(self.name(), "revoke", key, REVOKING_STORES);
        async move { Err(refused) }
    }

    /// Who holds the lock; `None` if it is free.
    ///
    /// # Errors
    ///
    /// If the store cannot say.
    fn inspect(&self, key: &Key) -> impl Future<Output = Result<Option<LockInfo>, Error>> + Send;

    /// The locks that are held and whose key starts with `prefix`, in the order of their keys.
    ///
    /// # Errors
    ///
    /// If the store cannot say.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<LockInfo>, Error>> + Send;

    /// Ends the store's connections. The manager calls it once, last.
    ///
    /// # Errors
    ///
    /// If something could not be ended in order; the store is closed all the same.
    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

fn unsupported(store: &str, what: &str, key: &Key, who: &str) -> Error {
    Error::unsupported(format!(
        "this store cannot {what}: store={store} key={key}; {who} can"
    ))
}
