//! The same locks for threads without a runtime: every wait blocks the thread.
//!
//! ```
//! use leasehold::LockManager;
//! use leasehold::store::MemoryStore;
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let guard = locks.lock("nightly").blocking().acquire()?;
//! let done = guard.executor().guarded(|_tx| Ok(42))?;
//! assert_eq!(done.value, 42);
//! guard.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To connect takes a tokio runtime. Any will do, and it may end afterwards:
//!
//! ```
//! use leasehold::LockManager;
//!
//! let url = "memory:"; // or "redis://...", "zookeeper://..."
//! let locks = tokio::runtime::Runtime::new()?.block_on(LockManager::connect(url))?;
//! let guard = locks.lock("nightly").blocking().acquire()?;
//! # drop(guard);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every other kind of lock uses [`LockManager::block_on`]:
//!
//! ```
//! # use leasehold::{LockManager, store::MemoryStore};
//! # let locks = LockManager::new(MemoryStore::new()?)?;
//! let reader = locks.block_on(locks.read_write("prices").read())??;
//! locks.block_on(reader.release())??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Deref;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop;

use crate::manager::LockManager;
use crate::model::error::Error;
use crate::store::Released;

impl LockManager {
    /// Runs a future to its end on this thread, which needs no runtime: for every call of this crate that is async.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) on a thread that drives a tokio runtime: it would stop that runtime's other
    /// tasks.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        wait_for(self.handle.context().runtime(), future)
    }
}

/// A [`Lock`](crate::Lock) whose calls block.
///
/// # Errors
///
/// Called inside of a task of a tokio runtime, every call is [`Invalid`](crate::ErrorKind::Invalid): it would stop that
/// runtime's other tasks. Threads of `spawn_blocking` may block.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Lock {
    inner: crate::Lock,
}

impl crate::Lock {
    /// The same lock, for a thread without a runtime.
    pub fn blocking(&self) -> Lock {
        Lock {
            inner: self.clone(),
        }
    }
}

impl Lock {
    /// As [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    ///
    /// As there, and `Invalid` inside a runtime.
    pub fn acquire(&self) -> Result<LockGuard, Error> {
        self.wait_for(self.inner.acquire())?.map(LockGuard::new)
    }

    /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Errors
    ///
    /// As there, and `Invalid` inside a runtime.
    pub fn acquire_within(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        Ok(self
            .wait_for(self.inner.acquire_within(wait))??
            .map(LockGuard::new))
    }

    /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Errors
    ///
    /// As there, and `Invalid` inside a runtime.
    pub fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        Ok(self
            .wait_for(self.inner.try_acquire())??
            .map(LockGuard::new))
    }

    fn wait_for<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        wait_for(self.inner.runtime(), future)
    }
}

/// A [`LockGuard`](crate::LockGuard) whose release blocks. Everything else is as there.
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct LockGuard {
    inner: crate::LockGuard,
}

impl LockGuard {
    fn new(inner: crate::LockGuard) -> Self {
        Self { inner }
    }

    /// As [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Errors
    ///
    /// As there. Inside a runtime it is `Invalid`, and the manager releases the lock in the background.
    pub fn release(self) -> Result<Released, Error> {
        let runtime = self.inner.runtime().clone();
        wait_for(&runtime, self.inner.release())?
    }
}

impl Deref for LockGuard {
    type Target = crate::LockGuard;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// Drives `future` on this thread, with the manager's runtime for its timers and connections.
fn wait_for<F: Future>(manager: &Handle, future: F) -> Result<F::Output, Error> {
    if is_in_task() {
        return Err(Error::invalid(
            "a blocking call inside a task of a tokio runtime would stop its other tasks; use the async form and await it, or spawn_blocking",
        ));
    }
    Ok(manager.block_on(future))
}

/// More than the budget that tokio gives to one poll of a task.
const MORE_THAN_A_BUDGET: usize = 1 << 10;

/// Whether this thread polls a task of a tokio runtime now. Such a poll has a budget; a thread that may block has none, also
/// where it knows a runtime. The budget of a task is used up by this.
fn is_in_task() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    (0..MORE_THAN_A_BUDGET).any(|_| match coop::poll_proceed(&mut cx) {
        Poll::Ready(step) => {
            step.made_progress();
            false
        }
        Poll::Pending => true,
    })
}
