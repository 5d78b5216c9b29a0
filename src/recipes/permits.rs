//! Permits: a semaphore that counts. Callers take as many as they need, at once, as long as all
//! together take at most its size.
//!
//! It is one key that its holders share as readers do, and the store adds up what they take. So a
//! request costs the same for a size of two and of a million, and each caller has one lease,
//! whatever it takes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{LockManager, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let memory = locks.permits("build/gigabytes", 64);
//! let large = memory.acquire_many(48).await?;
//! let small = memory.acquire_many(16).await?;
//! assert!(memory.try_acquire().await?.is_none());
//! large.release().await?;
//! assert!(memory.try_acquire_many(48).await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Order
//!
//! First come, first served, over all processes. Whoever waits for many is not passed by those that
//! want few, and everybody behind it waits too. A caller gets all that it asked for or nothing, so
//! two that want many never wait for each other. One that holds some and asks for more waits for
//! itself, if the others do the same: ask for all at once.
//!
//! # Size
//!
//! [`resize`](Permits::resize) changes the size at run time. After a growth, waiting callers ask
//! again at once. A smaller size takes nothing away: nobody is granted anything until enough was
//! released.
//!
//! The store keeps no size. Each request names the size that its caller knows, and is granted if
//! all permits together are at most that. Therefore all processes should have the same. While they
//! differ, callers of the smaller size wait longer, and at most the largest size is taken.
//!
//! One process can make it smaller for all: it takes the difference and keeps it. That counts for
//! all of them from its grant to its release, or for as long as the process lives.
//!
//! # Permits or slots
//!
//! Permits have no numbers, and their holders share one key with one order of tokens. A
//! [fence](crate::fence) and a [`GuardedCell`](crate::GuardedCell) admit the newest token only, so
//! they would shut out every holder but the latest one. If each holder writes to a resource of its
//! own, use a [semaphore](crate::semaphore), whose slots are locks. What a
//! [guarded](crate::LockGuard::guarded) run does under permits commits only while their lease is
//! live, as under a lock.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::manager::{LockGuard, LockManager};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::recipes::busy::too_few;
use crate::recipes::lock::Lock;
use crate::store::{Released, Share};

/// The largest size.
pub const MAX_PERMITS: u32 = 1_000_000;

/// A key of which callers take permits, up to a size. Nothing is held. Cloning is cheap, and all
/// clones have one size.
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until permits are acquired"]
#[doc(alias("semaphore", "counting semaphore", "RPermitExpirableSemaphore"))]
pub struct Permits {
    manager: LockManager,
    lock: Lock,
    size: Arc<watch::Sender<u32>>,
}

impl LockManager {
    /// The permits of a key: `size` of them, 1 to [`MAX_PERMITS`]. With another number, a malformed
    /// key, or a store whose [capability](Self::capability) does not say `shares`, every later call
    /// is an error.
    ///
    /// An exclusive [`lock`](Self::lock) of the same key keeps all holders of permits out, and they
    /// it.
    pub fn permits<K>(&self, key: K, size: u32) -> Permits
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Permits {
            manager: self.clone(),
            lock: self.lock(key),
            size: Arc::new(watch::Sender::new(size)),
        }
    }
}

impl Permits {
    /// Uses this TTL instead of the manager's.
    pub fn ttl(self, ttl: Duration) -> Self {
        let lock = self.lock.ttl(ttl);
        Self { lock, ..self }
    }

    /// How many permits there are, as the requests of this value and its clones say.
    #[must_use]
    pub fn size(&self) -> u32 {
        *self.size.borrow()
    }

    /// Changes the [size](Self::size) for this value and its clones, without a request. Callers
    /// that wait ask again, with a new place in the queue. From now on no call returns permits that
    /// were granted for a larger size; what is held stays held.
    ///
    /// Other processes keep their own size: see [the module](self#size).
    ///
    /// # Errors
    ///
    /// `Invalid` for a size that is not 1 to [`MAX_PERMITS`]. Nothing changes then.
    pub fn resize(&self, size: u32) -> Result<(), Error> {
        ensure_size(self.lock.key()?, size)?;
        self.size.send_if_modified(|old| {
            let is_other = *old != size;
            *old = size;
            is_other
        });
        Ok(())
    }

    /// Holds one permit, or fails when the manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<PermitsGuard, Error> {
        self.acquire_many(1).await
    }

    /// Holds so many permits, all under one lease, or fails when the manager's
    /// [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// `Invalid` for no permits, for more than the size, also one that [`resize`](Self::resize)
    /// sets meanwhile, and inside of a run under permits of this key. `Unsupported` if the store
    /// has no shares. Otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<PermitsGuard, Error> {
        let wait = self.manager.settings().wait;
        match self.acquire_many_within(permits, wait).await? {
            Some(guard) => Ok(guard),
            None => Err(self.contended(permits).await?),
        }
    }

    /// As [`acquire_many`](Self::acquire_many); `None` if it had to wait for longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many), except for permits that others hold.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire_many_within(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<PermitsGuard>, Error> {
        let clock = self.manager.handle.context().clock();
        let started = clock.stamp();
        let mut size = self.size.subscribe();
        loop {
            let share = self.share(permits, *size.borrow_and_update())?;
            let lock = self.lock.clone().in_share(share);
            let left = wait.saturating_sub(clock.stamp().since(&started));
            let held = tokio::select! {
                biased;
                held = lock.acquire_within(left) => held?,
                // Its sender is a part of this value.
                _ = size.changed() => continue,
            };
            let Some(guard) = held else { return Ok(None) };
            if share.of > *size.borrow() {
                // Granted for a size of before.
                let _ = guard.release().await;
                continue;
            }
            return Ok(Some(PermitsGuard {
                inner: guard,
                permits,
            }));
        }
    }

    /// As [`acquire`](Self::acquire), without a wait; `None` if no permit is free, or somebody
    /// waits.
    ///
    /// # Errors
    ///
    /// As [`acquire_many_within`](Self::acquire_many_within).
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<PermitsGuard>, Error> {
        self.try_acquire_many(1).await
    }

    /// As [`acquire_many`](Self::acquire_many), without a wait; `None` if fewer permits are free,
    /// or somebody waits.
    ///
    /// # Errors
    ///
    /// As [`acquire_many_within`](Self::acquire_many_within).
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<PermitsGuard>, Error> {
        self.acquire_many_within(permits, Duration::ZERO).await
    }

    fn share(&self, permits: u32, of: u32) -> Result<Share, Error> {
        let key = self.lock.key()?;
        ensure_size(key, of)?;
        if permits == 0 || permits > of {
            return Err(Error::invalid(format!(
                "a caller takes 1 to size permits: key={key} permits={permits} size={of}; ask for another number, or use a larger size"
            ))
            .of_key(key));
        }
        Ok(Share { permits, of })
    }

    /// The error when a wait ended without the permits.
    async fn contended(&self, permits: u32) -> Result<Error, Error> {
        let share = self.share(permits, self.size())?;
        let info = self.lock.holder().await;
        Ok(too_few(self.lock.key()?, share, info.as_ref()))
    }
}

fn ensure_size(key: &Key, size: u32) -> Result<(), Error> {
    if (1..=MAX_PERMITS).contains(&size) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "there are 1 to {MAX_PERMITS} permits: key={key} size={size}; use another size"
    ))
    .of_key(key))
}

/// Held permits: a [`LockGuard`] with one lease for all of them.
#[derive(Debug)]
#[must_use = "the permits are released as soon as their guard is dropped"]
pub struct PermitsGuard {
    inner: LockGuard,
    permits: u32,
}

impl PermitsGuard {
    /// How many it holds.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Releases all of them, as [`LockGuard::release`].
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

impl Deref for PermitsGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.inner
    }
}
