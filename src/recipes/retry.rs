//! One-shot runs that are repeated while that is safe: [`Lock::guarded_retry`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::retry::RetryPolicy;
//! use leasehold::{GuardedCell, LockManager, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let runs = GuardedCell::new(0);
//! let policy = RetryPolicy::default();
//! let work = |tx: &leasehold::Tx<'_>| {
//!     *tx.write(&runs) += 1;
//!     Ok(())
//! };
//! locks.lock("nightly").guarded_retry(&policy, work).await?;
//! assert_eq!(*runs.read(), 1);
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use crate::clock::{Clock, Stamp};
use crate::executor::{Abort, AsyncTx, Committed, RunError, Tx};
use crate::manager::in_runtime;
use crate::recipes::lock::Lock;

/// For how long, and with which pauses, a run is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// No attempt begins after this time, counted from the first. Default 30 s.
    pub within: Duration,
    /// The longest first pause. Each later one may be twice as long as the one before. Default 10 ms.
    pub delay: Duration,
    /// The longest pause of all. Default 1 s.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(30),
            delay: Duration::from_millis(10),
            max_delay: Duration::from_secs(1),
        }
    }
}

impl RetryPolicy {
    /// The default pauses, for at most this time.
    #[must_use]
    pub fn within(within: Duration) -> Self {
        Self {
            within,
            ..Self::default()
        }
    }
}

/// The attempts of one call.
struct Attempts<'a> {
    clock: &'a Clock,
    policy: &'a RetryPolicy,
    began: Stamp,
    delay: Duration,
}

impl<'a> Attempts<'a> {
    fn begin(clock: &'a Clock, policy: &'a RetryPolicy) -> Self {
        Self {
            clock,
            policy,
            began: clock.stamp(),
            delay: policy.delay.min(policy.max_delay),
        }
    }

    fn left(&self) -> Duration {
        let passed = self.clock.stamp().since(&self.began);
        self.policy.within.saturating_sub(passed)
    }

    /// Waits before the next attempt, between half of the delay and all of it: `jitter` thousandths of the rest. Returns false
    /// if there is no time for another attempt.
    async fn pause(&mut self, jitter: u32) -> bool {
        let half = self.delay / 2;
        let pause = half + half * jitter / 1_000;
        self.delay = (self.delay * 2).min(self.policy.max_delay);
        if self.left() <= pause {
            return false;
        }
        self.clock.sleep(pause).await;
        true
    }
}

impl Lock {
    /// As [`guarded`](Self::guarded), and repeated while nothing was applied and the policy allows it.
    ///
    /// Each attempt acquires the lock anew. The run is repeated exactly if [`RunError::is_retryable`] holds: never when parts of it
    /// may be applied. An error of the work counts as a rollback and is repeated too: to report a decision that a repetition does not
    /// change, return it in the value, `Ok(Err(why))`.
    ///
    /// # Errors
    ///
    /// The outcome of the last attempt.
    ///
    /// # Cancel safety
    ///
    /// As [`guarded`](Self::guarded).
    pub async fn guarded_retry<T>(
        &self,
        policy: &RetryPolicy,
        mut work: impl FnMut(&Tx<'_>) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        let mut attempts = Attempts::begin(self.handle().context().clock(), policy);
        loop {
            let outcome = match self.held_within(attempts.left()).await {
                Ok(guard) => {
                    let outcome = guard.executor().guarded(|tx| work(tx));
                    let _ = guard.release().await;
                    outcome
                }
                Err(error) => Err(error),
            };
            if !outcome.as_ref().is_err_and(RunError::is_retryable)
                || !self.pause(&mut attempts).await
            {
                return outcome;
            }
        }
    }

    /// As [`guarded_async`](Self::guarded_async), and repeated as [`guarded_retry`](Self::guarded_retry) is.
    ///
    /// # Errors
    ///
    /// The outcome of the last attempt.
    ///
    /// # Cancel safety
    ///
    /// As [`guarded_async`](Self::guarded_async).
    pub async fn guarded_retry_async<T>(
        &self,
        policy: &RetryPolicy,
        mut work: impl AsyncFnMut(&AsyncTx) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        let mut attempts = Attempts::begin(self.handle().context().clock(), policy);
        loop {
            let outcome = match self.held_within(attempts.left()).await {
                Ok(guard) => {
                    let outcome = guard.executor().guarded_async(&mut work).await;
                    let _ = guard.release().await;
                    outcome
                }
                Err(error) => Err(error),
            };
            if !outcome.as_ref().is_err_and(RunError::is_retryable)
                || !self.pause(&mut attempts).await
            {
                return outcome;
            }
        }
    }

    async fn pause(&self, attempts: &mut Attempts<'_>) -> bool {
        // Callers that collided once must not collide again.
        let jitter = self.handle().context().random_below(1_000);
        in_runtime(self.runtime(), attempts.pause(jitter)).await
    }

    async fn held_within<T>(&self, left: Duration) -> Result<crate::LockGuard, RunError<T>> {
        let wait = self.handle().context().settings().wait;
        let acquired = match self.acquire_within(wait.min(left)).await {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) => self.contended().await,
            Err(why) => why,
        };
        Err(RunError::NotAcquired { why: acquired })
    }
}
