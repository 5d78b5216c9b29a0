//! The contract between the lock manager and what grants locks.
//!
//! A [`Store`] grants a key to one claim at a time, for a TTL that it counts itself, and answers
//! with data. It knows nothing of leases, managers or guarded runs. [`MemoryStore`] is the
//! specification: read it first.
//!
//! A wrapper of a store is a store: [`Quorum`](quorum::Quorum) over [members](quorum::Member), and
//! for tests `Faulty` (feature `testing`), which fails on purpose.

#[cfg(any(
    feature = "kubernetes",
    feature = "object-store",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
pub(crate) mod access;
mod capability;
mod claim;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod dial;
mod erased;
#[cfg(target_os = "linux")]
mod file;
#[cfg(any(feature = "kubernetes", feature = "object-store"))]
pub(crate) mod http;
mod line;
mod member;
mod memory;
pub mod observed;
mod outcome;
pub mod quorum;
#[cfg(any(
    feature = "kubernetes",
    feature = "object-store",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
pub(crate) mod url;

use std::fmt::Debug;
use std::time::Duration;

pub use capability::{Capability, Fencing, Queue};
pub(crate) use capability::{
    FAIR_STORES, READ_WRITE_STORES, RESTING_STORES, REVOKING_STORES, SHARING_STORES,
};
pub use claim::{Claim, Grant, GrantProof, LockMode, Share};
pub(crate) use erased::{AnyStore, Erased, erase};
#[cfg(target_os = "linux")]
pub use file::{FileOptions, FileStore, OnDeath};
pub(crate) use line::{Asked, Line, Origin, Tombstones, Waiters, Woken, not_held};
#[cfg(target_os = "linux")]
pub(crate) use line::{Held, Place, Row, Wakes};
pub(crate) use member::{MAX_SKEW, Member, Raised, Vote};
pub use memory::MemoryStore;
#[cfg(any(feature = "kubernetes", feature = "object-store"))]
pub(crate) use observed::{Listed, ObservedStore, Record, Register, State, Swapped};
pub use outcome::{Acquired, Hint, LockInfo, Released, Renewed, Revoke, Revoked, Waiter, Withheld};

pub use crate::model::holder::{Label, OwnerToken};

use crate::model::error::Error;
use crate::model::key::Key;

/// Something that grants locks.
///
/// # Contract
///
/// For one key, over all clients of the store:
///
/// 1. **Exclusion.** From a grant until its TTL is over by the store's clock, or until it is
///    released, no other claim is granted.
/// 2. **Atomicity.** A single acquire, renew, release or withdraw takes effect at one instant, or
///    not at all.
/// 3. **Comparison.** Renew, release and withdraw compare the owner token and never touch another
///    claim's lock.
/// 4. **Fencing.** If the capability says [`Fencing::Monotonic`], each grant's token is larger than
///    that of every earlier grant of the key, over restarts (I8).
/// 5. **Honesty.** The store answers only with proof. A request whose outcome is unknown is
///    [`ErrorKind::InDoubt`](crate::ErrorKind::InDoubt);
///    [`Unavailable`](crate::ErrorKind::Unavailable) means that it had no effect and will have
///    none.
/// 6. **Order**, if the capability says that the store keeps a [queue](Queue): a claim that has to
///    wait has a place from its first request on whose [`place_ttl`](Claim::place_ttl) is not zero.
///    It keeps it until it is granted or withdrawn, or has sent no request for this time. No claim
///    is granted before an earlier place whose mode is not
///    [compatible](LockMode::is_compatible_with); a claim without a place comes after all places.
///    Several dead waiters delay the others as long as one does.
/// 7. **Handover**, if the capability says [so](Queue::Handover): a release, a withdrawal or the
///    end of a TTL grants the key in the same step to the first places, as far as their modes are
///    compatible. Each is granted for at most 1.2 seconds, and only these claims are woken. Such a
///    claim asks again, and is then granted for its full TTL with that token. Its [hint](Hint) may
///    be the grant already, for this time. Where clients without places may set a store's keys too,
///    the store may leave a key to them for at most 200 ms, once it was never free for seconds.
///    Then it wakes the first place, and grants it nothing before that time.
/// 8. **Modes**, if the capability says so: holders with compatible modes hold a key together, and
///    each of them lapses, is renewed and is released separately.
/// 9. **Shares**, if the capability says so: a claim with a [`Share`] is granted only if its
///    permits and those of all live holders are together at most its own `of`; a holder without a
///    share counts as none. In the queue it waits for every earlier place, whatever its mode, and
///    every later place waits for it. Where there is a handover, each end of a hold hands the key
///    over to the first places that fit.
///
/// Every method may be called from many tasks at once, and may be dropped at every await. The
/// outcome of a dropped request is unknown, and the caller withdraws its claim. Callers limit the
/// time of every call by dropping it.
pub trait Store: Debug + Send + Sync + 'static {
    /// A short name for messages: `memory`, `redis`. Never an address with a password.
    fn name(&self) -> &'static str;

    /// What this store supports. Does not change during the life of the store.
    fn capability(&self) -> Capability;

    /// Makes one attempt to hold a lock.
    ///
    /// # Contract
    ///
    /// Never waits for the holder: returns [`Acquired::Busy`]. Idempotent for a claim: if the claim
    /// already holds the lock (its first answer was lost), it is granted again with the same token.
    /// A claim that was withdrawn is never granted, even if the request arrives after the
    /// withdrawal.
    ///
    /// # Errors
    ///
    /// `InDoubt` if the claim may have been granted; any other kind if it was not.
    fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<Acquired, Error>> + Send;

    /// Extends many grants to a full TTL from now.
    ///
    /// # Contract
    ///
    /// Returns one answer for each grant, in the order of the grants. Compares and extends, never
    /// creates. Uses one round trip for the batch if the store can.
    fn renew(&self, grants: &[Grant]) -> impl Future<Output = Vec<Renewed>> + Send;

    /// Ends a hold.
    ///
    /// # Contract
    ///
    /// Compares and deletes. Idempotent. Wakes waiters. Returns `Released`, `AlreadyGone` or
    /// `Unknown`, never `Withheld`.
    fn release(&self, grant: &Grant) -> impl Future<Output = Released> + Send;

    /// Ends a hold, and lets the key rest for `rest` from now on, by the store's clock.
    ///
    /// # Contract
    ///
    /// As [`release`](Self::release), and in the same step a *rest* begins: a record of its own and
    /// no hold. Nobody is granted the key until it is over; only an exclusive hold can leave one.
    /// An attempt is answered with [`Acquired::Busy`] and what is left of it. It may be longer than
    /// any TTL, nobody renews it, and it is not handed over: places stay, and are served when it is
    /// over. A store that wakes waiters wakes those of the key once when a rest begins, since a job
    /// for which they wait may be done. A shorter rest does not end a longer one. [`Revoke::Now`]
    /// ends it. A store that loses its locks may lose it too. A claim that does not hold the lock
    /// changes nothing. The default implementation is `Unsupported`.
    fn rest(&self, grant: &Grant, rest: Duration) -> impl Future<Output = Released> + Send {
        let _ = rest;
        let refused = unsupported(
            self.name(),
            "let a key rest",
            &grant.claim.key,
            RESTING_STORES,
        );
        async move { Released::Unknown(refused) }
    }

    /// Cancels an attempt whose outcome is unknown, and removes its place in a queue.
    ///
    /// # Contract
    ///
    /// Afterwards the claim does not hold the lock and is never granted it, even if its acquire is
    /// executed later. Idempotent.
    ///
    /// # Errors
    ///
    /// If the store cannot confirm this: the caller retries, or the TTL ends the hold.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<(), Error>> + Send;

    /// Subscribes to the end of the current hold, and returns once subscribed. An end after that
    /// may resolve the hint.
    ///
    /// # Errors
    ///
    /// If the store cannot subscribe: the caller polls.
    fn subscribe(&self, claim: &Claim) -> impl Future<Output = Result<Hint, Error>> + Send;

    /// Subscribes without a request, if the messages about the key arrive already, because another
    /// claim of this process waits for it or did a moment ago. A caller whose next request finds
    /// the lock busy need not ask once more then before it waits. The default implementation
    /// returns `None`.
    ///
    /// # Contract
    ///
    /// As [`subscribe`](Self::subscribe) that has returned: an end after that may resolve the hint.
    fn listen(&self, claim: &Claim) -> Option<Hint> {
        let _ = claim;
        None
    }

    /// Turns a write hold into a read hold.
    ///
    /// # Contract
    ///
    /// One step, so no other writer can enter in between. The token, the remaining time and the
    /// owner token do not change; renew, release and withdraw use the owner token, whichever mode
    /// they name. Idempotent. Wakes waiters. The default implementation returns `Unsupported`.
    ///
    /// # Errors
    ///
    /// `Lost` if the claim does not hold the lock any more; `Unsupported` if the store has no such
    /// modes; `InDoubt` if the outcome is unknown.
    fn downgrade(&self, grant: &Grant) -> impl Future<Output = Result<Grant, Error>> + Send {
        let refused = unsupported(
            self.name(),
            "downgrade",
            &grant.claim.key,
            READ_WRITE_STORES,
        );
        async move { Err(refused) }
    }

    /// Takes a lock away from its holders.
    ///
    /// # Contract
    ///
    /// Afterwards no claim that held the key is renewed, and none gets its hold back. A claim whose
    /// renewal was answered with [`Renewed::Gone`] is `Invalid` when it asks again. One that asks
    /// before that is `Invalid` too, or is treated as a new claim. With [`Revoke::AfterTtl`] nobody
    /// is granted the key before the holder's time is over. Places in the queue stay. With
    /// [`Revoke::Now`] whoever is granted the key is woken. The default implementation returns
    /// `Unsupported`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store cannot revoke; `InDoubt` if the outcome is unknown.
    fn revoke(
        &self,
        key: &Key,
        how: Revoke,
    ) -> impl Future<Output = Result<Revoked, Error>> + Send {
        let _ = how;
        let refused = unsupported(self.name(), "revoke", key, REVOKING_STORES);
        async move { Err(refused) }
    }

    /// Returns who holds the lock; `None` if it is free.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    fn inspect(&self, key: &Key) -> impl Future<Output = Result<Option<LockInfo>, Error>> + Send;

    /// Lists the locks that are held and whose key starts with `prefix`, in the order of their
    /// keys, without [`labels`](LockInfo::labels) and [`waiters`](LockInfo::waiters).
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<LockInfo>, Error>> + Send;

    /// Closes the store's connections. The manager calls it once, at its end.
    ///
    /// # Contract
    ///
    /// Releases nothing: what is held stays held until its TTL is over, because it may have an
    /// effect on its way (I5). The same goes for a store that is dropped without this call.
    ///
    /// # Errors
    ///
    /// If something could not be closed cleanly; the store is closed anyway.
    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

fn unsupported(store: &str, what: &str, key: &Key, who: &str) -> Error {
    Error::unsupported(format!(
        "this store cannot {what}: store={store} key={key}; {who} can"
    ))
}
