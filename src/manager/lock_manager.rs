//! [`LockManager`]: the public face of the manager.

use std::time::Duration;

use tokio::sync::oneshot;

use super::builder::LockManagerBuilder;
use super::handle::Handle;
use super::message::Message;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::settings::Settings;
use crate::store::{Capability, Store};

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

/// A lock that this manager holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Held {
    /// Its key.
    pub key: Key,
    /// The fencing token of its grant.
    pub token: FencingToken,
    /// What is left of its lease.
    pub remaining: Duration,
    /// Whether its renewals are failing.
    pub is_at_risk: bool,
}

/// The state of a manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Health {
    /// How many locks it holds.
    pub held: usize,
    /// How late its thread came to its last timer. A long lag is the sign of a starved machine.
    pub timer_lag: Duration,
    /// The longest such lag since the manager was built.
    pub worst_timer_lag: Duration,
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
        LockManagerBuilder::new(store)
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

    /// The locks that this manager holds, in the order of their keys.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        let leases: Vec<_> = {
            let pages = self.handle.context().holds.lock();
            pages.holds().map(|hold| hold.lease.clone()).collect()
        };
        let mut held: Vec<_> = leases
            .iter()
            .map(|lease| Held {
                key: lease.key().clone(),
                token: lease.token(),
                remaining: lease.remaining(),
                is_at_risk: lease.is_at_risk(),
            })
            .collect();
        held.sort_by(|a, b| a.key.cmp(&b.key));
        held
    }

    /// The state of the manager.
    #[must_use]
    pub fn health(&self) -> Health {
        let holds = &self.handle.context().holds;
        Health {
            held: holds.lock().engine.len(),
            timer_lag: holds.timer_lag.last(),
            worst_timer_lag: holds.timer_lag.worst(),
        }
    }

    /// Ends every hold in order (no run begins or commits any more; runs in progress end; then the lock is released), closes
    /// the store and ends the manager's thread. Renewals stop at once, so that a run which never ends delays this by one TTL
    /// at most. Callers that wait for a lock get [`ErrorKind::Closed`](crate::ErrorKind::Closed).
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
    #[cfg(feature = "test-util")]
    pub async fn settled(&self) {
        let (done, is_done) = oneshot::channel();
        self.handle.context().inbox.send(Message::Settle(done));
        let _ = is_done.await;
    }
}
