//! [`Lock`]: a key, and how to ask for it.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::fence::{AnyFence, Fence, erase};
use crate::key::Key;
use crate::manager::{Handle, LockGuard, LockManager, Patience, Want, acquire, in_runtime};
use crate::store::Fencing;

/// An exclusive lock: a key and how to ask for it. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
#[doc(alias = "mutex")]
pub struct Lock {
    handle: Handle,
    key: Result<Key, Error>,
    ttl: Option<Duration>,
    fence: Option<AnyFence>,
}

impl LockManager {
    /// The exclusive lock of a key. A malformed key is an error of every later call.
    pub fn lock<K>(&self, key: K) -> Lock
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Lock {
            handle: self.handle.clone(),
            key: key.try_into().map_err(Into::into),
            ttl: None,
            fence: None,
        }
    }
}

impl Lock {
    /// Asks for this TTL in place of the manager's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Ties a fence to the lock: it is raised to each new holder's token *before* the guard is handed out, so that no former
    /// holder can write between the new one's first read and its first write. If it cannot be raised within
    /// [`request_timeout`](crate::Settings::request_timeout), the lock is released and the acquire fails.
    ///
    /// The store's tokens have to grow ([`Fencing::Monotonic`]): else every acquire is `Unsupported`.
    pub fn fence(mut self, fence: impl Fence) -> Self {
        self.fence = Some(erase(fence));
        self
    }

    /// Holds the lock, or fails when the manager's [`wait`](crate::Settings::wait) is over. There is no wait without an
    /// end: what is asked over a network may never be answered.
    ///
    /// # Errors
    ///
    /// `Contended` if somebody else held it for all that time, or if as many callers wait as may; otherwise as the store
    /// failed last.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a place in the queue is given up, and what was asked of the store is withdrawn in the background.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let wait = self.handle.shared().settings().wait;
        self.acquire_within(wait).await?.ok_or_else(|| {
            let key = self.key.as_ref().map_or("", Key::as_str);
            Error::contended(format!("somebody else held the lock for all of wait={wait:?}: key={key}; try later, or wait longer"))
        })
    }

    /// Holds the lock, or gives `None` if somebody else held it for all of `wait`: one budget for everything that it takes.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but for a lock that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let patience = if wait.is_zero() {
            Patience::Once
        } else {
            Patience::Within(wait)
        };
        self.ask(patience).await
    }

    /// Holds the lock, or gives `None` if it is busy now: one look, without a wait.
    ///
    /// # Errors
    ///
    /// As the store failed.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        self.ask(Patience::Once).await
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.handle.shared().runtime()
    }

    async fn ask(&self, patience: Patience) -> Result<Option<LockGuard>, Error> {
        let want = self.want()?;
        let fenced = async {
            let guard = acquire(self.handle.shared(), want, patience).await?;
            match (guard, &self.fence) {
                (Some(guard), Some(fence)) => self.raise(fence, guard).await.map(Some),
                (guard, _) => Ok(guard),
            }
        };
        in_runtime(self.runtime(), fenced).await
    }

    async fn raise(&self, fence: &AnyFence, guard: LockGuard) -> Result<LockGuard, Error> {
        let limit = self.handle.shared().settings().request_timeout;
        let raising = fence.raise(guard.key(), guard.token());
        let clock = guard.lease().clock().clone();
        let raised = clock.timeout(limit, raising).await.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "the fence was not raised within request_timeout={limit:?}: key={}; look at it, or raise request_timeout",
                guard.key()
            )))
        });
        // Nothing was done under this hold, so that nothing has to wait for its end.
        match raised {
            Ok(()) => Ok(guard),
            Err(error) => {
                let _ = guard.release().await;
                Err(error)
            }
        }
    }

    fn want(&self) -> Result<Want, Error> {
        let shared = self.handle.shared();
        let settings = shared.settings();
        if self.fence.is_some() && shared.capability().fencing != Fencing::Monotonic {
            return Err(Error::unsupported(
                "this store does not promise that its tokens grow, and a fence needs that; use another store, or replicas=n",
            ));
        }
        let ttl = self.ttl.unwrap_or(settings.ttl);
        if ttl != settings.ttl {
            if !shared.capability().ttl_per_lock {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "this store has one ttl for all locks: ttl={:?}; leave out the lock's own",
                        settings.ttl
                    ),
                ));
            }
            // The lock's own ttl obeys the same rules as the manager's.
            let mut own = settings.clone();
            own.ttl = ttl;
            own.validate()?;
        }
        Ok(Want {
            key: self.key.clone()?,
            ttl,
        })
    }
}
