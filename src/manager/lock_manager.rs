//! [`LockManager`]: the public face of the manager.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use super::builder::LockManagerBuilder;
use super::handle::Handle;
use super::message::Message;
use crate::model::error::Error;
use crate::settings::Settings;
use crate::store::{Capability, Store, erase};

/// Holds and renews the locks of one store. Cloning is cheap; all clones are the same manager.
///
/// ```
/// use leasehold::LockManager;
/// use leasehold::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let locks = LockManager::new(MemoryStore::new()?)?;
/// let guard = locks.lock("accounts/7").acquire().await?;
/// assert!(guard.lease().is_live());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// When the last clone and the last guard are dropped the manager shuts down in the background;
/// call [`shutdown`](Self::shutdown) to wait for it.
#[derive(Clone, Debug)]
pub struct LockManager {
    pub(crate) handle: Handle,
}

impl LockManager {
    /// A manager over `store` with the default settings.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::build`].
    pub fn new(store: impl Store) -> Result<Self, Error> {
        Self::builder(store).build()
    }

    /// A builder for a manager over `store`.
    pub fn builder(store: impl Store) -> LockManagerBuilder {
        LockManagerBuilder::over(erase(store))
    }

    /// The settings that the manager was built with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.handle.context().settings
    }

    /// What the store claims to do.
    #[must_use]
    pub fn capability(&self) -> Capability {
        self.handle.context().capability
    }

    /// Runs a future to its end on this thread, which needs no runtime. Every async call of this
    /// crate can be made so.
    ///
    /// ```
    /// use leasehold::LockManager;
    ///
    /// // Connecting needs a tokio runtime. Any will do, and it may end afterwards.
    /// let runtime = tokio::runtime::Runtime::new()?;
    /// let locks = runtime.block_on(LockManager::connect("memory:"))?;
    /// drop(runtime);
    ///
    /// let guard = locks.block_on(locks.lock("nightly").acquire())?;
    /// let done = guard.guarded(|_tx| Ok(42))?;
    /// assert_eq!(done.value, 42);
    /// locks.block_on(guard.release())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// In a task of a tokio runtime, whose other tasks it would stop: await the call, or make it in
    /// `spawn_blocking`. And for a manager [on a runtime of
    /// yours](LockManagerBuilder::on_current_runtime): it does not drive that runtime, and would
    /// wait for ever if nobody did; use the `block_on` of that runtime.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let runtime = self.handle.context().runtime();
        assert!(
            runtime.is_driven(),
            "the manager is on a runtime that this call does not drive; use the block_on of that runtime"
        );
        // Only tokio knows whether this is a task or a thread that may block. It panics in a task.
        let probe = AssertUnwindSafe(|| runtime.block_on(std::future::ready(())));
        assert!(
            catch_unwind(probe).is_ok(),
            "block_on in a task of a tokio runtime would stop its other tasks; await the call, or make it in spawn_blocking"
        );
        let _in_progress = runtime.begin_call();
        runtime.block_on(future)
    }

    /// Ends every hold in order (no run begins or commits any more; runs in progress end; then the
    /// lock is released), closes the store and ends the manager's thread. Renewals stop at once.
    /// Therefore a run or a compensation that never ends delays this by one TTL and one
    /// `request_timeout` at most. Such a compensation continues, and reports its debt. Callers that
    /// wait for a lock get [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the shutdown continues.
    pub async fn shutdown(&self) {
        let (done, is_done) = oneshot::channel();
        self.handle
            .context()
            .inbox
            .send(Message::Shutdown(Some(done)));
        // An error means that the task has ended before.
        let _ = is_done.await;
    }

    /// Completes when the manager has nothing left to do until time passes or the store answers. A
    /// test awaits it between moving a manual clock and checking the result.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    #[cfg(feature = "testing")]
    pub async fn settled(&self) {
        let (done, is_done) = oneshot::channel();
        self.handle.context().inbox.send(Message::Settle(done));
        let _ = is_done.await;
    }
}
