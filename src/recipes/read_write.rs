//! Read/write locks: many readers or one writer.
//!
//! A key is read by many or written by one, first come, first served: a reader waits behind every
//! earlier writer, and a writer behind every earlier claim. So neither starves.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{GuardedCell, LockManager, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let prices = GuardedCell::new(vec![1, 2]);
//!
//! let writer = locks.read_write("prices").write().await?;
//! let _done = writer.guarded(|tx| Ok(tx.write(&prices).push(3)))?;
//! // No other writer comes in between.
//! let reader = writer.downgrade().await?;
//! let seen = reader.read(|_check| prices.read().len())?;
//! assert_eq!(seen, 3);
//! # Ok(())
//! # }
//! ```
//!
//! # No upgrade
//!
//! A reader cannot become a writer: two readers that both want to would wait for each other for
//! ever. Release the read hold, acquire a write hold, and read the data again.
//!
//! A task that calls code that takes the same lock uses [`reentrant`](ReadWriteLock::reentrant): a
//! writer may read there too.
//!
//! # What a read hold may do
//!
//! A [`ReadGuard`] has no [`Executor`](crate::Executor) and is not a [`LockGuard`], so no run under
//! it can write a [`GuardedCell`](crate::GuardedCell):
//!
//! ```compile_fail,E0599
//! # fn show(reader: &leasehold::read_write::ReadGuard, cell: &leasehold::GuardedCell<u8>) {
//! reader.guarded(|tx| Ok(*tx.write(cell) = 1));
//! # }
//! ```
//!
//! Its token grows like every other. It may raise a fence, so an earlier writer cannot write while
//! it reads; it must never admit a write, because another reader has another token at the same
//! time.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::fence::{Fence, erase};
use crate::lease::{Lease, LeaseError};
use crate::manager::{LockGuard, LockManager};
use crate::model::error::{Ended, Error};
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::recipes::lock::Lock;
use crate::store::{LockMode, Released};

/// A key with many readers or one writer. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
#[doc(alias = "RwLock")]
pub struct ReadWriteLock {
    pub(super) reader: Lock,
    pub(super) writer: Lock,
}

impl LockManager {
    /// The read/write lock of a key. With a malformed key, or a store without such modes, every
    /// later call is an error.
    ///
    /// An exclusive [`lock`](Self::lock) of the same key excludes readers and writers.
    pub fn read_write<K>(&self, key: K) -> ReadWriteLock
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let lock = self.lock(key);
        ReadWriteLock {
            reader: lock.clone().in_mode(LockMode::Read),
            writer: lock.in_mode(LockMode::Write),
        }
    }
}

impl ReadWriteLock {
    /// Uses this TTL instead of the manager's.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            reader: self.reader.ttl(ttl),
            writer: self.writer.ttl(ttl),
        }
    }

    /// Ties a fence to the lock, as [`Lock::fence`]: it is raised to the token of each writer, and
    /// of each reader, so no former writer can write while they read. Readers do not block each
    /// other.
    pub fn fence(self, fence: impl Fence) -> Self {
        let fence = erase(fence);
        Self {
            reader: self.reader.behind(Arc::clone(&fence)),
            writer: self.writer.behind(fence),
        }
    }

    /// Holds the key for reading, together with other readers, or fails when the manager's
    /// [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store has no read and write modes; otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.reader.acquire().await.map(ReadGuard::new)
    }

    /// As [`read`](Self::read); `None` if it had to wait for longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn read_within(&self, wait: Duration) -> Result<Option<ReadGuard>, Error> {
        let held = self.reader.acquire_within(wait).await?;
        Ok(held.map(ReadGuard::new))
    }

    /// As [`read`](Self::read), without a wait; `None` if a writer holds the key or waits for it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        Ok(self.reader.try_acquire().await?.map(ReadGuard::new))
    }

    /// Holds the key alone, or fails when the manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.writer.acquire().await.map(WriteGuard::new)
    }

    /// As [`write`](Self::write); `None` if it had to wait for longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn write_within(&self, wait: Duration) -> Result<Option<WriteGuard>, Error> {
        let held = self.writer.acquire_within(wait).await?;
        Ok(held.map(WriteGuard::new))
    }

    /// As [`write`](Self::write), without a wait; `None` if anybody holds the key or waits for it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        Ok(self.writer.try_acquire().await?.map(WriteGuard::new))
    }
}

/// A key held for reading, with other readers. Renewed until it is released, dropped or lost.
///
/// It has no executor: see the [module](self).
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct ReadGuard {
    inner: LockGuard,
}

/// A key held for writing, alone. Renewed until it is released, dropped or lost.
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct WriteGuard {
    inner: LockGuard,
}

/// The lease check for a long read.
#[derive(Debug)]
pub struct ReadCheck<'a> {
    lease: &'a Lease,
}

impl<'a> ReadCheck<'a> {
    pub(super) fn of(lease: &'a Lease) -> Self {
        Self { lease }
    }

    /// Fails if the read hold is over: a writer may be active.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`].
    pub fn check(&self) -> Result<(), LeaseError> {
        self.lease.ensure(Duration::ZERO).map(|_| ())
    }
}

impl ReadGuard {
    fn new(inner: LockGuard) -> Self {
        Self { inner }
    }

    /// The lease: deadline, remaining time, token, signals.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.inner.lease()
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.inner.token()
    }

    /// The remaining time of the lease; zero if it is not live.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Completes when the lease has ended. A convenience; it never proves that the lease is live:
    /// see [`Lease::lost`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only observes.
    pub async fn lost(&self) -> Ended {
        self.inner.lost().await
    }

    /// Ends the hold and reports the result, as [`LockGuard::release`].
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

    /// Reads under the hold: returns the result of `read` only if the lease was live before it and
    /// is still live after it, so no writer was active in between.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if the lease was over: before, and `read` was not called, or after, and
    /// its result may be torn.
    pub fn read<T>(&self, read: impl FnOnce(&ReadCheck<'_>) -> T) -> Result<T, LeaseError> {
        let check = ReadCheck::of(self.lease());
        check.check()?;
        let value = read(&check);
        // A lease that is live now was live all the time: it never becomes live again (I2).
        check.check()?;
        Ok(value)
    }
}

impl WriteGuard {
    fn new(inner: LockGuard) -> Self {
        Self { inner }
    }

    /// Ends the hold and reports the result, as [`LockGuard::release`].
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

    /// Becomes a reader without a gap: no other writer can enter in between, and the token does not
    /// change. Runs in progress end first; the executors of the write hold refuse runs from then
    /// on.
    ///
    /// # Errors
    ///
    /// `Lost` if the lease ended, `InDoubt` if an effect under it is in doubt or the store did not
    /// answer; otherwise as the store failed. After an error nothing is held: the hold is ended in
    /// the background.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, the hold is ended in the background.
    ///
    /// # Deadlock
    ///
    /// It waits for runs in progress: do not await it from inside one of them.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        self.inner.downgrade().await.map(ReadGuard::new)
    }
}

impl Deref for WriteGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.inner
    }
}
