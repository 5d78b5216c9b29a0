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
//! Connecting needs a tokio runtime. Any will do, and it may end afterwards:
//!
//! ```
//! use leasehold::LockManager;
//!
//! let url = "memory:"; // or "redis://...", "zookeeper://..."
//! let runtime = tokio::runtime::Runtime::new()?;
//! let locks = runtime.block_on(LockManager::connect(url))?;
//! let guard = locks.lock("nightly").blocking().acquire()?;
//! # drop(guard);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every kind of lock has it, and every other async call of this crate runs in [`LockManager::block_on`]:
//!
//! ```
//! # use leasehold::{LockManager, store::MemoryStore};
//! # let locks = LockManager::new(MemoryStore::new()?)?;
//! let writer = locks.read_write("prices").blocking().write()?;
//! let reader = writer.downgrade()?;
//! reader.release()?;
//! let holder = locks.block_on(locks.inspect("prices"))??;
//! assert!(holder.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop;

use super::election::{Election, Leadership};
use super::lock::Lock as AsyncLock;
use super::multi::{MultiGuard, MultiLock};
use super::read_write::{ReadGuard, ReadWriteLock, WriteGuard};
use super::reentrant::{
    ReentrantGuard, ReentrantLock, ReentrantReadGuard, ReentrantReadWriteLock, ReentrantWriteGuard,
    Scope,
};
use super::semaphore::{Semaphore, SemaphorePermit};
use crate::manager::{LockGuard as AsyncGuard, LockManager};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::shared_runtime::SharedRuntime;
use crate::store::Released;

impl LockManager {
    /// Runs a future to its end on this thread, without a runtime: for every async call of this crate.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) on a thread that drives a tokio runtime: it would stop that runtime's other
    /// tasks.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        wait_for(self.handle.context().runtime(), future)
    }
}

/// A lock of any kind whose calls block: each is that of the kind, and returns a [`Held`].
///
/// # Errors
///
/// Those of the kind's own call. Called inside of a task of a tokio runtime, every call is
/// [`Invalid`](crate::ErrorKind::Invalid): it would stop that runtime's other tasks. Threads of `spawn_blocking` may block.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Blocking<L> {
    inner: L,
    runtime: SharedRuntime,
}

/// A guard whose release blocks. Everything else is as with the guard itself.
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Held<G> {
    inner: G,
    runtime: SharedRuntime,
}

/// A [`Lock`](crate::Lock) whose calls block.
pub type Lock = Blocking<AsyncLock>;

/// A [`LockGuard`](crate::LockGuard) whose release blocks.
pub type LockGuard = Held<AsyncGuard>;

impl<G> Deref for Held<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.inner
    }
}

impl<L> Blocking<L> {
    fn wait_for<G>(
        &self,
        future: impl Future<Output = Result<G, Error>>,
    ) -> Result<Held<G>, Error> {
        let inner = wait_for(&self.runtime, future)??;
        let runtime = self.runtime.clone();
        Ok(Held { inner, runtime })
    }

    fn try_for<G>(
        &self,
        future: impl Future<Output = Result<Option<G>, Error>>,
    ) -> Result<Option<Held<G>>, Error> {
        let held = wait_for(&self.runtime, future)??;
        let runtime = || self.runtime.clone();
        Ok(held.map(|inner| Held {
            inner,
            runtime: runtime(),
        }))
    }
}

/// The calls of a kind: those that hold, and those that hold or return `None`.
macro_rules! blocking {
    ($($kind:ident at $path:literal, by $runtime:expr => {
        $($call:ident($($name:ident: $type:ty),*) -> $guard:ty;)*
    } or none {
        $($try:ident($($try_name:ident: $try_type:ty),*) -> $try_guard:ty;)*
    })*) => {$(
        impl $kind {
            /// The same lock, for a thread without a runtime.
            pub fn blocking(&self) -> Blocking<Self> {
                let runtime: fn(&Self) -> &SharedRuntime = $runtime;
                Blocking { runtime: runtime(self).clone(), inner: self.clone() }
            }
        }

        impl Blocking<$kind> {
            $(
                #[doc = concat!("As [`", stringify!($call), "`](crate::", $path, "::", stringify!($call), ").")]
                ///
                /// # Errors
                ///
                /// As there, and `Invalid` inside a runtime.
                pub fn $call(&self, $($name: $type),*) -> Result<Held<$guard>, Error> {
                    self.wait_for(self.inner.$call($($name),*))
                }
            )*
            $(
                #[doc = concat!("As [`", stringify!($try), "`](crate::", $path, "::", stringify!($try), ").")]
                ///
                /// # Errors
                ///
                /// As there, and `Invalid` inside a runtime.
                pub fn $try(&self, $($try_name: $try_type),*) -> Result<Option<Held<$try_guard>>, Error> {
                    self.try_for(self.inner.$try($($try_name),*))
                }
            )*
        }
    )*};
}

blocking! {
    AsyncLock at "Lock", by |lock| lock.runtime() => {
        acquire() -> AsyncGuard;
        acquire_now() -> AsyncGuard;
    } or none {
        acquire_within(wait: Duration) -> AsyncGuard;
        try_acquire() -> AsyncGuard;
    }
    ReadWriteLock at "ReadWriteLock", by |lock| lock.reader.runtime() => {
        read() -> ReadGuard;
        write() -> WriteGuard;
    } or none {
        read_within(wait: Duration) -> ReadGuard;
        try_read() -> ReadGuard;
        write_within(wait: Duration) -> WriteGuard;
        try_write() -> WriteGuard;
    }
    ReentrantLock at "ReentrantLock", by |lock| lock.lock.runtime() => {
        acquire(scope: &Scope) -> ReentrantGuard;
    } or none {
        acquire_within(scope: &Scope, wait: Duration) -> ReentrantGuard;
        try_acquire(scope: &Scope) -> ReentrantGuard;
    }
    ReentrantReadWriteLock at "reentrant::ReentrantReadWriteLock", by |lock| lock.lock.reader.runtime() => {
        read(scope: &Scope) -> ReentrantReadGuard;
        write(scope: &Scope) -> ReentrantWriteGuard;
    } or none {
        read_within(scope: &Scope, wait: Duration) -> ReentrantReadGuard;
        try_read(scope: &Scope) -> ReentrantReadGuard;
        write_within(scope: &Scope, wait: Duration) -> ReentrantWriteGuard;
        try_write(scope: &Scope) -> ReentrantWriteGuard;
    }
    MultiLock at "MultiLock", by |lock| lock.manager.handle.context().runtime() => {
        acquire() -> MultiGuard;
        acquire_now() -> MultiGuard;
    } or none {
        acquire_within(wait: Duration) -> MultiGuard;
        try_acquire() -> MultiGuard;
    }
    Semaphore at "Semaphore", by |lock| lock.manager.handle.context().runtime() => {
        acquire() -> SemaphorePermit;
    } or none {
        acquire_within(wait: Duration) -> SemaphorePermit;
        try_acquire() -> SemaphorePermit;
    }
    Election at "Election", by |lock| lock.manager.handle.context().runtime() => {
        campaign(name: &str) -> Leadership;
    } or none {
        campaign_within(name: &str, wait: Duration) -> Leadership;
    }
}

/// The end of each guard.
macro_rules! released {
    ($($guard:ty, $end:ident -> $answer:ty;)*) => {$(
        impl Held<$guard> {
            /// Ends the hold, as the guard's own call of this name.
            ///
            /// # Errors
            ///
            /// As there. Inside a runtime it is `Invalid`, and the manager ends the hold in the background.
            pub fn $end(self) -> Result<$answer, Error> {
                wait_for(&self.runtime, self.inner.$end())?
            }
        }
    )*};
}

released! {
    AsyncGuard, release -> Released;
    ReadGuard, release -> Released;
    WriteGuard, release -> Released;
    ReentrantGuard, release -> Option<Released>;
    ReentrantReadGuard, release -> Option<Released>;
    ReentrantWriteGuard, release -> Option<Released>;
    MultiGuard, release -> Vec<(Key, Released)>;
    SemaphorePermit, release -> Released;
    Leadership, resign -> Released;
}

impl Held<AsyncGuard> {
    /// As [`LockGuard::release_within`](crate::LockGuard::release_within).
    ///
    /// # Errors
    ///
    /// As there. Inside a runtime it is `Invalid`, and the manager ends the hold in the background.
    pub fn release_within(self, limit: Duration) -> Result<Released, Error> {
        wait_for(&self.runtime, self.inner.release_within(limit))?
    }
}

impl Held<WriteGuard> {
    /// Becomes a reader, as [`WriteGuard::downgrade`].
    ///
    /// # Errors
    ///
    /// As there. Inside a runtime it is `Invalid`, and the manager ends the hold in the background.
    pub fn downgrade(self) -> Result<Held<ReadGuard>, Error> {
        let inner = wait_for(&self.runtime, self.inner.downgrade())??;
        let runtime = self.runtime;
        Ok(Held { inner, runtime })
    }
}

/// Drives `future` on this thread, with the manager's runtime for its timers and connections.
fn wait_for<F: Future>(manager: &SharedRuntime, future: F) -> Result<F::Output, Error> {
    if is_in_task(manager) {
        return Err(Error::invalid(
            "a blocking call inside a task of a tokio runtime would stop its other tasks; use the async form and await it, or spawn_blocking",
        ));
    }
    let _in_progress = manager.begin_call();
    Ok(manager.block_on(future))
}

/// More than the budget that tokio gives to one poll of a task.
const MORE_THAN_A_BUDGET: usize = 1 << 10;

/// Whether this thread polls a task of a tokio runtime now.
fn is_in_task(manager: &Handle) -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    has_budget() || !may_block(manager)
}

/// The poll of a task has a budget; a thread that may block has none, even if it knows a runtime. The call uses up the budget.
fn has_budget() -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..MORE_THAN_A_BUDGET).any(|_| match coop::poll_proceed(&mut cx) {
        Poll::Ready(step) => {
            step.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

/// A task may have no budget (`tokio::task::unconstrained`). Only tokio can tell it from a thread that may block, and panics there:
/// its message is printed, and the caller gets an error.
fn may_block(manager: &Handle) -> bool {
    let nothing = AssertUnwindSafe(|| manager.block_on(std::future::ready(())));
    catch_unwind(nothing).is_ok()
}
