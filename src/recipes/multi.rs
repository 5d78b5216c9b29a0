//! Several keys at once: all or nothing, one guard.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::run::read_together;
//! use leasehold::{GuardedCell, LockManager, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! // Each account belongs to its own lock.
//! let seven = GuardedCell::for_key("accounts/7".parse()?, 100);
//! let three = GuardedCell::for_key("accounts/3".parse()?, 0);
//!
//! // The transfer holds both, and both changes appear together.
//! let both = locks.lock_all(["accounts/7", "accounts/3"]);
//! let guard = both.acquire().await?;
//! guard.guarded(|tx| {
//!     *tx.write(&seven) -= 10;
//!     *tx.write(&three) += 10;
//!     Ok(())
//! })?;
//! let (left, right) = read_together((&seven, &three));
//! assert_eq!((*left, *right), (90, 10));
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The keys are acquired in their order, so two callers never wait for each other. After a failure
//! the keys that were acquired are released before the error is returned; after a cancellation they
//! are released in the background.
//!
//! Each key has its own fencing token. The runs of the [executor](MultiGuard::executor) are under
//! all locks. They need *all* leases live, so they end with the earliest. They may write the cells
//! of every key. The permit of their commit [contains every key and
//! token](crate::run::CommitPermit::locks), so a fence compares all of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::executor::{Executor, own_runs};
use crate::fence::{Fence, erase};
use crate::lease::Lease;
use crate::manager::{LockGuard, LockManager, joint_executor};
use crate::model::commit::not_held;
use crate::model::error::{Ended, Error};
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::recipes::lock::Lock;
use crate::store::Released;

/// Several keys and how to ask for all of them. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct MultiLock {
    pub(super) manager: LockManager,
    /// In the order of their keys, each once.
    locks: Result<Vec<Lock>, Error>,
}

impl LockManager {
    /// All of these keys, each once, in any order. Without a key, or with a malformed one, every
    /// later call is an error.
    pub fn lock_all<K>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let keys: Result<Vec<Key>, Error> = keys
            .into_iter()
            .map(|key| key.try_into().map_err(Into::into))
            .collect();
        let locks = keys.map(|mut keys| {
            keys.sort();
            keys.dedup();
            keys.into_iter().map(|key| self.lock(key)).collect()
        });
        MultiLock {
            manager: self.clone(),
            locks,
        }
    }
}

impl MultiLock {
    /// Uses this TTL instead of the manager's.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.ttl(ttl))
    }

    /// Each key first come, first served, as [`Lock::fair`].
    pub fn fair(self) -> Self {
        self.each(Lock::fair)
    }

    /// Ties a fence to the lock of each key, as [`Lock::fence`].
    pub fn fence(self, fence: impl Fence) -> Self {
        let fence = erase(fence);
        self.each(|lock| lock.behind(Arc::clone(&fence)))
    }

    fn each(self, change: impl FnMut(Lock) -> Lock) -> Self {
        let locks = self
            .locks
            .map(|locks| locks.into_iter().map(change).collect());
        Self { locks, ..self }
    }

    /// Holds all keys, or fails when the manager's [`wait`](crate::Settings::wait) is over: one
    /// budget for all of them.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]. No key is held then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the keys that were acquired are released in the background, and open requests
    /// are withdrawn.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        let wait = self.manager.settings().wait;
        match self.hold_all(Some(wait)).await? {
            Ok(guard) => Ok(guard),
            Err(busy) => Err(busy.contended().await),
        }
    }

    /// As [`acquire`](Self::acquire); `None` if it had to wait for longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for keys that are busy.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        Ok(self.hold_all(Some(wait)).await?.ok())
    }

    /// As [`acquire`](Self::acquire), without a wait; `None` if one of the keys is not free.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for keys that are busy.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        Ok(self.hold_all(None).await?.ok())
    }

    /// All, or the lock that was busy. Without a `wait` each is asked for once.
    async fn hold_all(&self, wait: Option<Duration>) -> Result<Result<MultiGuard, &Lock>, Error> {
        let locks = self.locks.as_ref().map_err(Clone::clone)?;
        let context = self.manager.handle.context();
        if wait.is_some_and(|wait| !wait.is_zero()) {
            // Before the wait for any of them.
            for lock in locks {
                context.ensure_may_wait_for(lock.key()?)?;
            }
        }
        let clock = context.clock();
        let started = clock.stamp();
        // Each key may take one request, and its fence another.
        let for_requests = 2 * self.manager.settings().request_timeout * locks.len() as u32;
        // Dropped half way, it releases what it has; not polled, it keeps that for as long as it
        // waits.
        let mut guards = Vec::with_capacity(locks.len());
        for lock in locks {
            let held = match wait {
                None => lock.try_acquire().await,
                Some(wait) => {
                    let left = wait.saturating_sub(clock.stamp().since(&started));
                    lock.acquire_within(left).await
                }
            };
            match held {
                Ok(Some(mut guard)) => {
                    let left = wait.map(|wait| wait.saturating_sub(clock.stamp().since(&started)));
                    guard.expect_within(left.unwrap_or_default().saturating_add(for_requests));
                    guards.push(guard);
                }
                Ok(None) => {
                    release_all(guards).await;
                    return Ok(Err(lock));
                }
                Err(error) => {
                    release_all(guards).await;
                    return Err(error);
                }
            }
        }
        let guards: Vec<_> = guards.into_iter().map(LockGuard::claimed).collect();
        let needed = self.manager.settings().min_usable;
        let over = guards
            .iter()
            .find_map(|guard| guard.lease().ensure(needed).err());
        if let Some(error) = over {
            release_all(guards).await;
            return Err(Error::unavailable(format!(
                "one lock was lost while the others were waited for: {error}; try again"
            )));
        }
        let mut guards = guards.into_iter();
        let first = guards
            .next()
            .ok_or_else(|| Error::invalid("no key was named; name at least one"))?;
        let others = guards.collect();
        Ok(Ok(MultiGuard {
            first,
            others,
            joint: OnceLock::new(),
            executor: OnceLock::new(),
        }))
    }
}

async fn release_all(
    guards: impl IntoIterator<Item = LockGuard>,
) -> Vec<Result<(Key, Released), Error>> {
    join_all(guards.into_iter().map(|guard| async {
        let key = guard.key().clone();
        Ok((key, guard.release().await?))
    }))
    .await
}

/// Several held locks. Renewed until they are released or dropped, or until one is lost.
#[derive(Debug)]
#[must_use = "the locks are released as soon as their guard is dropped"]
pub struct MultiGuard {
    /// Of the first key in their order.
    first: LockGuard,
    others: Vec<LockGuard>,
    /// The lease of the runs under all of them; made with the first executor.
    joint: OnceLock<Lease>,
    /// Of the runs of the guard itself; made with the first of them.
    executor: OnceLock<Executor>,
}

impl MultiGuard {
    own_runs!();

    /// The executor of runs under all of these locks. A run begins, continues and commits only
    /// while every lease is live, and the end of each hold waits for it.
    ///
    /// A run may write the [cells](crate::GuardedCell::for_key) of every key; they appear together.
    /// Its commit, its debts and its events carry every key and token;
    /// [`Tx::token`](crate::Tx::token) is that of the first key in their order, and
    /// [`Tx::locks`](crate::Tx::locks) that of a key.
    #[must_use]
    pub fn executor(&self) -> Executor {
        joint_executor(&self.first, &self.others, &self.joint)
    }

    /// The lease of one of the keys.
    ///
    /// # Errors
    ///
    /// `Invalid` if the key is none of those that are held.
    pub fn lease(&self, key: &str) -> Result<&Lease, Error> {
        self.of(key).map(LockGuard::lease)
    }

    /// The fencing token of one of the keys.
    ///
    /// # Errors
    ///
    /// `Invalid` if the key is none of those that are held.
    pub fn token(&self, key: &str) -> Result<FencingToken, Error> {
        self.of(key).map(LockGuard::token)
    }

    fn guards(&self) -> impl Iterator<Item = &LockGuard> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn of(&self, key: &str) -> Result<&LockGuard, Error> {
        let guard = self.guards().find(|guard| guard.key().as_str() == key);
        guard.ok_or_else(|| not_held(self.keys()))
    }

    /// The keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.guards().map(LockGuard::key)
    }

    /// The remaining time of the lease that ends first; zero if one is not live.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let each = self.guards().map(LockGuard::remaining);
        each.min().unwrap_or_default()
    }

    /// Completes when the first lease has ended. A convenience; it never proves that a lease is
    /// live: see [`Lease::lost`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only observes.
    pub async fn lost(&self) -> Ended {
        let each = self.guards().map(|guard| Box::pin(guard.lost()));
        select_all(each).await.0
    }

    /// Ends every hold and reports each result, in the order of the keys, as
    /// [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`], for the first key whose release was not confirmed. Every hold has
    /// ended all the same.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the ends continue in the background.
    pub async fn release(self) -> Result<Vec<(Key, Released)>, Error> {
        let guards = std::iter::once(self.first).chain(self.others);
        release_all(guards).await.into_iter().collect()
    }
}
