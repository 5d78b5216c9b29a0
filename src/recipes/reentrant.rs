//! Reentrant locks: the holder may acquire the lock again.
//!
//! The holder is a value: a [`Scope`]. Pass it along, or let the task carry it within [`scope`]. It
//! is not a thread id: a task moves between threads, and a thread runs many tasks.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{LockManager, reentrant::Scope, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let ledger = locks.reentrant("ledger");
//!
//! let scope = Scope::new();
//! let outer = ledger.acquire(&scope).await?;
//! // The same hold, without a request to the store.
//! let inner = ledger.acquire(&scope).await?;
//! assert_eq!(inner.token(), outer.token());
//! assert!(inner.release().await?.is_none()); // still held
//! assert!(outer.release().await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Re-entry checks the deadline, counts, and keeps the token. The hold ends with the last of its
//! guards, which in nested use is the outermost. For another scope the lock is an ordinary
//! exclusive lock: it waits.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::fence::Fence;
use crate::lease::Lease;
use crate::manager::{LockGuard, LockManager, in_runtime};
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::key::Key;
use crate::model::of_task::OfTask;
use crate::recipes::lock::Lock;
use crate::recipes::read_write_scope::ReadWritePlace;
pub use crate::recipes::read_write_scope::{
    ReentrantReadGuard, ReentrantReadWriteLock, ReentrantWriteGuard,
};
use crate::store::Released;

/// The entries of a scope: one for each lock that it has acquired, by manager and key.
struct Places<T> {
    entries: HashMap<(usize, Key), Arc<T>>,
    /// How many there may be before those without a hold are removed.
    most: usize,
}

/// A scope with fewer entries is not searched for those without a hold.
const FEW_PLACES: usize = 8;

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            most: FEW_PLACES,
        }
    }
}

/// What a scope holds of one key. Its tasks that ask at once ask each for itself, and all enter the
/// hold that the first of them gets: none waits for another's request, which perhaps nobody polls.
#[derive(Default)]
struct ScopeHold {
    /// The hold, while one of its guards lives.
    held: Mutex<Weak<LockGuard>>,
    changed: Notify,
}

tokio::task_local! {
    static CURRENT: OfTask<Scope>;
}

/// The identity of a holder of reentrant locks. Cloning is cheap; all clones are the same scope.
///
/// Two tasks that share a scope both enter: for them the lock excludes nothing.
#[derive(Clone, Default)]
pub struct Scope {
    places: Arc<Mutex<Places<ScopeHold>>>,
    of_read_write: Arc<Mutex<Places<ReadWritePlace>>>,
}

/// Runs `work` in a scope that [`Scope::current`] returns: the enclosing scope if there is one,
/// otherwise a new one. It ends with the work; a task that the work spawns is outside of it.
///
/// # Cancel safety
///
/// As cancel safe as `work`.
pub async fn scope<F: Future>(work: F) -> F::Output {
    let scope = Scope::current().unwrap_or_default();
    OfTask::scope(&CURRENT, scope, work).await
}

impl Scope {
    /// A scope that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The scope of the current task, if it runs within [`scope`].
    #[must_use]
    pub fn current() -> Option<Self> {
        OfTask::of(&CURRENT)
    }

    fn place(&self, of: &Lock) -> Result<Arc<ScopeHold>, Error> {
        place(&self.places, of, |place| {
            place.held.lock().strong_count() == 0
        })
    }

    pub(super) fn of_read_write(&self, of: &Lock) -> Result<Arc<ReadWritePlace>, Error> {
        place(&self.of_read_write, of, ReadWritePlace::is_empty)
    }
}

fn place<T: Default>(
    places: &Mutex<Places<T>>,
    of: &Lock,
    is_empty: impl Fn(&T) -> bool,
) -> Result<Arc<T>, Error> {
    let manager = Arc::as_ptr(of.handle().context()) as usize;
    let mut places = places.lock();
    let Places { entries, most } = &mut *places;
    if entries.len() >= *most {
        // An entry without a hold and without a caller is removed. Half of them are new since the
        // last time, so a scope has at most twice as many as it has holds, and each acquire pays
        // for a few.
        entries.retain(|_, place| {
            let is_asked = Arc::strong_count(place) > 1;
            is_asked || !is_empty(place)
        });
        *most = (2 * entries.len()).max(FEW_PLACES);
    }
    Ok(Arc::clone(
        entries.entry((manager, of.key()?.clone())).or_default(),
    ))
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// A lock that its holder may acquire again. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct ReentrantLock {
    pub(super) lock: Lock,
}

impl LockManager {
    /// The reentrant lock of a key. For other scopes, and for callers that use the same key without
    /// one, it is an exclusive lock.
    pub fn reentrant<K>(&self, key: K) -> ReentrantLock
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        ReentrantLock {
            lock: self.lock(key),
        }
    }
}

impl ReentrantLock {
    /// Uses this TTL instead of the manager's, as [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            lock: self.lock.ttl(ttl),
        }
    }

    /// First come, first served among scopes and processes, as [`Lock::fair`]. Re-entry does not
    /// queue.
    pub fn fair(self) -> Self {
        Self {
            lock: self.lock.fair(),
        }
    }

    /// Renews a hold for at most this long, as [`Lock::max_hold`]. Re-entry does not prolong it.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self {
            lock: self.lock.max_hold(max_hold),
        }
    }

    /// Ties a fence to the lock, as [`Lock::fence`]: it is raised with the outermost guard.
    pub fn fence(self, fence: impl Fence) -> Self {
        Self {
            lock: self.lock.fence(fence),
        }
    }

    /// Holds the lock for `scope`, or enters the hold that the scope has, or fails when the
    /// manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// `Lost` if the scope's hold has lapsed or is about to: drop its guards and begin again.
    /// Otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self, scope: &Scope) -> Result<ReentrantGuard, Error> {
        let wait = self.lock.handle().context().settings().wait;
        match self.acquire_within(scope, wait).await? {
            Some(guard) => Ok(guard),
            None => Err(self.lock.contended().await),
        }
    }

    /// As [`acquire`](Self::acquire), without a wait; `None` if somebody else holds it now.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for a lock that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self, scope: &Scope) -> Result<Option<ReentrantGuard>, Error> {
        self.acquire_within(scope, Duration::ZERO).await
    }

    /// As [`acquire`](Self::acquire); `None` if the lock was not free within `wait`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for a lock that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire_within(
        &self,
        scope: &Scope,
        wait: Duration,
    ) -> Result<Option<ReentrantGuard>, Error> {
        let entered = self.entered_within(scope, wait);
        in_runtime(self.lock.runtime(), entered).await
    }

    async fn entered_within(
        &self,
        scope: &Scope,
        wait: Duration,
    ) -> Result<Option<ReentrantGuard>, Error> {
        let place = scope.place(&self.lock)?;
        let mut asked = pin!(self.lock.acquire_within(wait));
        loop {
            let mut changed = pin!(place.changed.notified());
            // Registered before the check: another task may get a hold in between.
            changed.as_mut().enable();
            let held = place.held.lock().upgrade();
            if let Some(guard) = held {
                ensure_enterable(&self.lock, guard.lease())?;
                return Ok(Some(ReentrantGuard { guard }));
            }
            tokio::select! {
                biased;
                () = changed => {}
                guard = &mut asked => {
                    let Some(guard) = guard? else {
                        return Ok(None);
                    };
                    let guard = Arc::new(guard);
                    *place.held.lock() = Arc::downgrade(&guard);
                    place.changed.notify_waiters();
                    return Ok(Some(ReentrantGuard { guard }));
                }
            }
        }
    }
}

/// Whether enough is left of the lease of a scope's hold to enter it again.
pub(super) fn ensure_enterable(lock: &Lock, lease: &Lease) -> Result<(), Error> {
    let needed = lock.handle().context().settings().min_usable;
    lease.ensure(needed).map(drop).map_err(|error| {
        let reason = lease.lost_reason().unwrap_or(Ended::Lapsed);
        Error::new(
            ErrorKind::Lost(reason),
            format!(
                "the scope's hold cannot be entered: {error}: key={}; drop its guards and begin again",
                lease.key()
            ),
        )
    })
}

/// One entry into a hold; the hold ends with the last of them. Everything else is as with
/// [`LockGuard`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as the last of its guards is dropped"]
pub struct ReentrantGuard {
    guard: Arc<LockGuard>,
}

impl ReentrantGuard {
    /// Leaves the hold. The last guard to leave ends it and gets the result, as
    /// [`LockGuard::release`]; the others get `None`.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the end continues in the background.
    pub async fn release(self) -> Result<Option<Released>, Error> {
        match Arc::into_inner(self.guard) {
            Some(last) => last.release().await.map(Some),
            None => Ok(None),
        }
    }
}

impl Deref for ReentrantGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::store::MemoryStore;

    /// The entries of a scope with `holds` holds, and how often one was checked for being empty.
    fn entered(holds: usize, is_held: bool) -> (usize, usize) {
        let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
        let places: Mutex<Places<Cell<bool>>> = Mutex::default();
        let looks = Cell::new(0);
        for number in 0..holds {
            let is_empty = |is_held: &Cell<bool>| {
                looks.set(looks.get() + 1);
                !is_held.get()
            };
            let entry = place(&places, &locks.lock(format!("{number}")), is_empty).unwrap();
            entry.set(is_held);
        }
        let entries = places.lock().entries.len();
        (entries, looks.get())
    }

    #[test]
    fn an_acquire_in_a_scope_does_not_look_at_every_hold_of_the_scope() {
        let (entries, looks) = entered(1_000, true);
        assert_eq!(entries, 1_000);
        assert!(looks <= 2 * 1_000, "{looks}");
    }

    #[test]
    fn a_scope_stays_as_small_as_its_holds() {
        let (entries, looks) = entered(1_000, false);
        assert!(entries <= FEW_PLACES, "{entries}");
        assert!(looks <= 2 * 1_000, "{looks}");
    }
}
