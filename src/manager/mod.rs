//! The lock manager: it holds locks and moves their leases forward on proven heartbeats.
//!
//! ```text
//!  caller ──► acquire ──► queue (one asks the store, the others wait) ──► store
//!                │                                                          ▲
//!                ▼                                                          │
//!              hold ──► book ◄── task (own thread, own runtime) ────────────┘
//!                │        └─ engine: when to renew, worry, give up (pure)
//!                └─► lease: the word that every run reads
//! ```
//!
//! A manager runs on a thread and a runtime of its own, so that no busy worker, blocking closure or starved runtime can
//! delay a heartbeat. Callers ask the store from their own task; only what they leave behind (a dropped guard, an attempt
//! whose fate is unknown) goes through the manager's thread.

mod acquire;
mod aside;
mod ask;
mod batch;
mod builder;
mod downgrade;
mod engine;
mod guard;
mod hold;
mod joint;
#[cfg(feature = "test-util")]
mod probe;
mod queue;
mod shared;
#[cfg(test)]
mod simulator;
mod task;
mod waits;
mod wheel;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::context::TokioContext;

pub(crate) use acquire::{Patience, Spans, Want};
pub(crate) use ask::acquire;
pub use builder::LockManagerBuilder;
pub use guard::LockGuard;
pub(crate) use joint::joint_executor;
#[cfg(feature = "test-util")]
pub use probe::Renewals;
pub(crate) use shared::Handle;
use task::Msg;

use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::settings::Settings;
use crate::store::{Capability, LockInfo, REVOKING_STORES, Revoke, Revoked, Store};

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
/// let _ = guard.release().await;
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

/// How a manager fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Health {
    /// How many locks it holds.
    pub held: usize,
    /// How late its thread came to its last timer: the sign of a starved machine.
    pub timer_lag: Duration,
    /// The worst of that since it was built.
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

    /// A manager over `store`, to be set up.
    pub fn builder(store: impl Store) -> LockManagerBuilder {
        LockManagerBuilder::new(store)
    }

    /// The settings that the manager was built with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.handle.shared.settings
    }

    /// What the store claims to do.
    #[must_use]
    pub fn capability(&self) -> Capability {
        self.handle.shared.capability
    }

    /// The locks that this manager holds, in the order of their keys.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        let leases: Vec<_> = {
            let book = self.handle.shared.book.lock();
            book.holds().map(|hold| hold.lease.clone()).collect()
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

    /// How the manager fares.
    #[must_use]
    pub fn health(&self) -> Health {
        let shared = &self.handle.shared;
        Health {
            held: shared.book.lock().engine.len(),
            timer_lag: Duration::from_nanos(shared.timer_lag.last.load(Ordering::Relaxed)),
            worst_timer_lag: Duration::from_nanos(shared.timer_lag.worst.load(Ordering::Relaxed)),
        }
    }

    /// Who holds a lock, as the store tells it; `None` if it is free.
    ///
    /// # Errors
    ///
    /// `Invalid` for a malformed key; `Unavailable` if the store does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub async fn inspect<K>(&self, key: K) -> Result<Option<LockInfo>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = key.try_into().map_err(Into::into)?;
        self.ask(self.handle.shared.store.inspect(&key)).await
    }

    /// The locks that are held and whose key starts with `prefix`, as the store tells it.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.ask(self.handle.shared.store.list(prefix)).await
    }

    /// Takes a lock away from whoever holds it, in any process: for operators, when a holder hangs.
    ///
    /// With [`Revoke::AfterTtl`] the next holder enters only after the old lease has ended. With [`Revoke::Now`] it enters at
    /// once, and **two may act** until the old holder's next heartbeat or its deadline: only a fence at the resource keeps
    /// them apart then. The log says so.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store cannot; `Invalid` for a malformed key; `InDoubt` if the store did not answer in time:
    /// look with [`inspect`](Self::inspect), or ask again.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the request may or may not have taken effect. Asking again is harmless.
    pub async fn revoke<K>(&self, key: K, how: Revoke) -> Result<Revoked, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let shared = &self.handle.shared;
        let key = key.try_into().map_err(Into::into)?;
        if !shared.capability.revokes {
            return Err(Error::unsupported(format!(
                "this store takes no lock away: store={} key={key}; wait for the ttl, or use a store whose capability says revokes: {REVOKING_STORES}",
                shared.store.name()
            )));
        }
        let limit = shared.settings.request_timeout;
        let revoking = shared.clock.timeout(limit, shared.store.revoke(&key, how));
        let revoked = in_runtime(&shared.handle, revoking).await.unwrap_or_else(|| {
            Err(Error::in_doubt(format!(
                "no answer to a revocation within {limit:?}: key={key}; look with inspect, or ask again"
            )))
        });
        if (revoked.as_ref()).is_err_and(|error| error.kind() == ErrorKind::InDoubt) {
            tracing::warn!(%key, "a lock may have been taken away from its holder by force: there was no answer");
        }
        let revoked = revoked?;
        match (revoked, how) {
            (Revoked::Revoked { .. }, Revoke::AfterTtl) => {
                tracing::warn!(%key, "a lock was taken away from its holder by force")
            }
            (Revoked::Revoked { .. }, Revoke::Now) => {
                tracing::warn!(%key, "a lock was taken away from its holder by force, and is free at once: two may act until the old holder notices")
            }
            _ => {}
        }
        Ok(revoked)
    }

    /// Ends every hold in order (no run begins or commits any more; runs in progress end; then the lock is released), closes
    /// the store and ends the manager's thread. Renewals stop at once, so that a run which never ends holds this up for one
    /// TTL at most. Whoever waits for a lock gets [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the shutdown goes on.
    pub async fn shutdown(&self) {
        let (done, is_done) = oneshot::channel();
        self.handle.shared.send(Msg::Shutdown(Some(done)));
        // An error says that the task has ended before: it is done all the same.
        let _ = is_done.await;
    }

    /// Completes when the manager has nothing left to do without time passing or a store answering: the barrier between
    /// moving a manual clock and looking at what came of it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    #[cfg(feature = "test-util")]
    pub async fn settled(&self) {
        let (done, is_done) = oneshot::channel();
        self.handle.shared.send(Msg::Settle(done));
        let _ = is_done.await;
    }

    /// One look at the store, bounded in time.
    async fn ask<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let shared = &self.handle.shared;
        shared.ensure_at_work()?;
        let limit = shared.settings.request_timeout;
        in_runtime(&shared.handle, shared.clock.timeout(limit, answer)).await.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "the store did not answer within {limit:?}: store={}; look at it, or raise request_timeout",
                shared.store.name()
            )))
        })
    }
}

/// Polls `future` in the caller's runtime, or, where there is none, in the manager's.
pub(crate) async fn in_runtime<F: Future>(
    manager: &tokio::runtime::Handle,
    future: F,
) -> F::Output {
    if tokio::runtime::Handle::try_current().is_ok() {
        future.await
    } else {
        TokioContext::new(future, manager.clone()).await
    }
}
