//! A semaphore: at most `n` holders of a name at a time, over all processes.
//!
//! It is `n` exclusive locks, the slots `name/slot-0` to `name/slot-(n - 1)`, and a caller holds
//! any one of them. So it works on every store, and a slot is an ordinary lock: its own lease, its
//! own fencing token that grows with each holder *of that slot*, its own fence. A resource that
//! checks tokens keeps one fence for each slot ([`LockGuard::key`]): with one fence for all slots,
//! the newest holder would lock out the others, which are live.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{LockManager, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let downloads = locks.semaphore("downloads", 2);
//! let one = downloads.acquire().await?;
//! let other = downloads.acquire().await?;
//! assert_ne!(one.slot(), other.slot());
//! assert!(downloads.try_acquire().await?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! All clients must use the same `n`: the store does not keep it. A waiting caller waits for every
//! slot, and no order of waiting callers is promised. If they must be served in order, acquire a
//! fair lock before the semaphore.
//!
//! [Permits](crate::permits) are served in order, a caller may take many, and there may be a
//! million. They have no slots.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::fence::{Fence, erase};
use crate::manager::{LockGuard, LockManager, in_runtime};
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::recipes::busy::{MOST_NAMED, no_slot};
use crate::recipes::lock::{Lock, may_be_raised_later};
use crate::store::Released;

/// The largest number of slots: a waiting caller asks for each of them.
pub const MAX_SLOTS: u32 = 64;

/// A name that at most `n` callers hold at a time. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a semaphore holds nothing until a slot is acquired"]
pub struct Semaphore {
    pub(super) manager: LockManager,
    slots: Result<Vec<Lock>, Error>,
}

impl LockManager {
    /// The semaphore of a name with `slots` slots, 1 to [`MAX_SLOTS`]. With another number, or a
    /// name that is not a key, every later call is an error.
    pub fn semaphore<K>(&self, name: K, slots: u32) -> Semaphore
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let name = name.try_into().map_err(Into::into);
        let locks = name.and_then(|name| {
            if slots == 0 || slots > MAX_SLOTS {
                return Err(Error::invalid(format!(
                    "a semaphore has 1 to {MAX_SLOTS} slots: slots={slots} key={name}; name another number"
                )));
            }
            (0..slots)
                .map(|slot| {
                    let key = Key::parse(&format!("{name}/slot-{slot}"))?;
                    Ok(self.lock(key).counted_once().raised_once())
                })
                .collect()
        });
        Semaphore {
            manager: self.clone(),
            slots: locks,
        }
    }
}

impl Semaphore {
    /// Ties a fence to each slot, as [`Lock::fence`]: it is raised to the holder's token under the
    /// slot's own key, so holders of different slots do not lock each other out.
    ///
    /// Each raise is one attempt, of at most [`request_timeout`](crate::Settings::request_timeout).
    /// If it fails, the slot is released, and the caller asks for it again after a pause, until its
    /// wait is over. The pause doubles each time, up to
    /// [`max_poll_interval`](crate::Settings::max_poll_interval).
    pub fn fence(self, fence: impl Fence) -> Self {
        let fence = erase(fence);
        let behind = |lock: Lock| lock.behind(Arc::clone(&fence));
        let slots = self
            .slots
            .map(|slots| slots.into_iter().map(behind).collect());
        Self { slots, ..self }
    }

    /// Holds any slot, or fails when the manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<SemaphorePermit, Error> {
        let wait = self.manager.settings().wait;
        match self.acquire_within(wait).await? {
            Some(permit) => Ok(permit),
            None => Err(self.contended().await),
        }
    }

    /// The error when a wait ended without a slot, with holders of the first slots.
    async fn contended(&self) -> Error {
        let slots = match &self.slots {
            Ok(slots) => slots,
            Err(error) => return error.clone(),
        };
        let looks = slots.iter().take(MOST_NAMED).map(Lock::holder);
        let infos = join_all(looks).await;
        no_slot(slots.len(), infos.iter().flatten())
    }

    /// As [`acquire`](Self::acquire); `None` if no slot was free within `wait`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for slots that are busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<SemaphorePermit>, Error> {
        let runtime = self.manager.handle.context().runtime();
        in_runtime(runtime, self.one_of_all_within(wait)).await
    }

    async fn one_of_all_within(&self, wait: Duration) -> Result<Option<SemaphorePermit>, Error> {
        let context = self.manager.handle.context();
        let clock = context.clock();
        let started = clock.stamp();
        let missed = match self.try_acquire().await {
            Ok(Some(permit)) => return Ok(Some(permit)),
            Ok(None) => None,
            Err(error) if error.is_retryable() => Some(error),
            Err(error) => return Err(error),
        };
        let left = wait.saturating_sub(clock.stamp().since(&started));
        if left.is_zero() {
            return missed.map_or(Ok(None), Err);
        }
        let slots = self.slots.as_ref().map_err(Clone::clone)?;
        // The caller waits once, for whichever slot is free first.
        let _counted = context.counted()?;
        // A slot that a run of the caller is under cannot become free before the run ends.
        let all_own = slots.iter().all(Lock::is_inside_run);
        let mut asked: FuturesUnordered<_> = (0..)
            .zip(slots)
            .filter(|(_, lock)| all_own || !lock.is_inside_run())
            .map(|(slot, lock)| async move { (slot, self.one_within(lock, left).await) })
            .collect();
        let mut failed = None;
        // The first grant is used; the other requests are withdrawn when they are dropped.
        while let Some((slot, held)) = asked.next().await {
            match held {
                Ok(Some(inner)) => return Ok(Some(SemaphorePermit { inner, slot })),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Holds this slot. While its fence cannot be raised, others may have it between two attempts.
    async fn one_within(&self, lock: &Lock, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let context = self.manager.handle.context();
        let clock = context.clock();
        let began = clock.stamp();
        let left = || wait.saturating_sub(clock.stamp().since(&began));
        let mut pause = context.retry_pause();
        loop {
            match lock.acquire_within(left()).await {
                Err(error) if may_be_raised_later(&error) && left() > pause => {}
                held => return held,
            }
            context.pause(pause).await;
            pause = (2 * pause).min(context.settings().max_poll_interval);
        }
    }

    /// As [`acquire`](Self::acquire), without a wait; `None` if no slot is free.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for slots that are busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>, Error> {
        let slots = self.slots.as_ref().map_err(Clone::clone)?;
        let count = slots.len() as u32;
        // Begins with another slot each time, so callers do not all ask for the first one.
        let first = self.manager.handle.context().jitter.below(u64::from(count)) as u32;
        let mut not_ready = None;
        for slot in (0..count).map(|n| (first + n) % count) {
            match slots[slot as usize].try_acquire().await {
                Ok(Some(inner)) => return Ok(Some(SemaphorePermit { inner, slot })),
                Ok(None) => {}
                // Another slot may be on another server.
                Err(error) if error.kind() == ErrorKind::NotReady => not_ready = Some(error),
                Err(error) => return Err(error),
            }
        }
        not_ready.map_or(Ok(None), Err)
    }
}

/// A held slot: a [`LockGuard`] of the slot's own key.
#[derive(Debug)]
#[must_use = "the slot is released as soon as its guard is dropped"]
pub struct SemaphorePermit {
    inner: LockGuard,
    slot: u32,
}

impl SemaphorePermit {
    /// The number of the slot, from 0. At most one holder has it at a time, so it can name the
    /// resource that the holder uses.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Releases the slot, as [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::release`].
    pub async fn release(self) -> Result<Released, Error> {
        self.inner.release().await
    }
}

impl Deref for SemaphorePermit {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.inner
    }
}
