//! What operators ask a manager: who holds a lock, which locks are held, and to take one away.

use std::time::Duration;

use super::lock_manager::LockManager;
use super::runtime::in_runtime;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::store::{LockInfo, REVOKING_STORES, Revoke, Revoked};

impl LockManager {
    /// Who holds a lock, as the store reports it; `None` if it is free.
    ///
    /// # Errors
    ///
    /// `Invalid` for a malformed key; `Closed` if the manager was shut down; `Unavailable` if the
    /// store does not answer in time.
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
        self.ask(self.handle.context().store.inspect(&key)).await
    }

    /// The locks that are held and whose key starts with `prefix`, as the store reports it.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down; `Unavailable` if the store does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.ask(self.handle.context().store.list(prefix)).await
    }

    /// Takes a lock away from whoever holds it, in any process: for operators, when a holder hangs.
    ///
    /// With [`Revoke::AfterTtl`] the next holder enters only after the old lease has ended. With
    /// [`Revoke::Now`] it enters at once, and **two may act** until the old holder's next heartbeat
    /// or its deadline: only a fence at the resource keeps them apart then. The log says so.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store cannot; `Invalid` for a malformed key; `Closed` if the manager
    /// was shut down; `InDoubt` if the store did not answer in time: look with
    /// [`inspect`](Self::inspect), or ask again.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the request may or may not have taken effect. Asking again is harmless.
    pub async fn revoke<K>(&self, key: K, how: Revoke) -> Result<Revoked, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let context = self.handle.context();
        context.lifetime.ensure_open()?;
        let key = key.try_into().map_err(Into::into)?;
        if !context.capability.revokes {
            return Err(Error::unsupported(format!(
                "this store takes no lock away: store={} key={key}; wait for the ttl, or use a store whose capability says revokes: {REVOKING_STORES}",
                context.store.name()
            )));
        }
        let limit = context.settings.request_timeout;
        let revoking = context.store.revoke(&key, how);
        let revoked = self.ask_within(limit, revoking).await?.unwrap_or_else(|| {
            Err(Error::in_doubt(format!(
                "no answer to a revocation within {limit:?}: key={key}; look with inspect, or ask again"
            )))
        });
        if (revoked.as_ref()).is_err_and(|error| error.kind() == ErrorKind::InDoubt) {
            tracing::warn!(target: "leasehold::manager", %key, "a lock may have been taken away from its holder by force: there was no answer");
        }
        let revoked = revoked?;
        match (revoked, how) {
            (Revoked::Revoked { .. }, Revoke::AfterTtl) => {
                tracing::warn!(target: "leasehold::manager", %key, "a lock was taken away from its holder by force")
            }
            (Revoked::Revoked { .. }, Revoke::Now) => {
                tracing::warn!(target: "leasehold::manager", %key, "a lock was taken away from its holder by force, and is free at once: two may act until the old holder notices")
            }
            _ => {}
        }
        Ok(revoked)
    }

    /// One look at the store, bounded in time.
    async fn ask<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let context = self.handle.context();
        let limit = context.settings.request_timeout;
        self.ask_within(limit, answer).await?.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "the store did not answer within {limit:?}: store={}; check it, or raise request_timeout",
                context.store.name()
            )))
        })
    }

    /// What `asked` resolves with; `None` if it takes longer than `limit`.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down before.
    async fn ask_within<T>(
        &self,
        limit: Duration,
        asked: impl Future<Output = T>,
    ) -> Result<Option<T>, Error> {
        let context = self.handle.context();
        let asked = async {
            context.lifetime.ensure_open()?;
            Ok(context.clock.timeout(limit, asked).await)
        };
        in_runtime(&context.runtime, asked).await
    }
}
