//! [`LockManager`]: the public face of the manager.

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
/// When the last clone and the last guard are dropped the manager shuts down in the background; call
/// [`shutdown`](Self::shutdown) to wait for it.
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

    /// Ends every hold in order (no run begins or commits any more; runs in progress end; then the lock is released), closes
    /// the store and ends the manager's thread. Renewals stop at once. Therefore a run or a compensation that never ends delays this by
    /// one TTL and one `request_timeout` at most. Such a compensation continues, and reports its debt. Callers that wait for a lock get
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
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

    /// Completes when the manager has nothing left to do until time passes or the store answers. A test awaits it between
    /// moving a manual clock and checking the result.
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
