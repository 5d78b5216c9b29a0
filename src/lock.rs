//! [`Lock`]: a key, and how to ask for it.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::manager::{Handle, LockGuard, LockManager, Patience, Want, acquire, in_runtime};

/// An exclusive lock: a key and how to ask for it. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
#[doc(alias = "mutex")]
pub struct Lock {
    handle: Handle,
    key: Result<Key, Error>,
    ttl: Option<Duration>,
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
        }
    }
}

impl Lock {
    /// Asks for this TTL in place of the manager's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
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
        let shared = self.handle.shared();
        in_runtime(self.runtime(), acquire(shared, want, patience)).await
    }

    fn want(&self) -> Result<Want, Error> {
        let shared = self.handle.shared();
        let settings = shared.settings();
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
