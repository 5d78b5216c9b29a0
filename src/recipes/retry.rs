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
use crate::manager::{LockGuard, in_runtime};
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

    /// The pause before the next attempt, between half of the delay and all of it: `jitter` thousandths of the rest. `None` if there
    /// is no time for another attempt.
    fn next(&mut self, jitter: u32) -> Option<Duration> {
        let half = self.delay / 2;
        let pause = half + half / 1_000 * jitter;
        self.delay = self.delay.saturating_mul(2).min(self.policy.max_delay);
        (self.left() > pause).then_some(pause)
    }
}

impl Lock {
    /// As [`guarded`](Self::guarded), and repeated while nothing was applied and the policy allows it.
    ///
    /// Each attempt acquires the lock anew. The run is repeated exactly if [`RunError::is_retryable`] holds: never when parts of it
    /// may be applied, and not when the work has failed or refused, unless its error says that another try may help. A key that
    /// [rests](Self::hold_at_least) rests after the last attempt only.
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
            let (guard, outcome) = match self.held_within(attempts.left()).await {
                Ok(guard) => {
                    let outcome = guard.executor().guarded(|tx| work(tx));
                    (Some(guard), outcome)
                }
                Err(error) => (None, Err(error)),
            };
            let is_retryable = outcome.as_ref().is_err_and(RunError::is_retryable);
            if !self.goes_on(&mut attempts, guard, is_retryable).await {
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
            let (guard, outcome) = match self.held_within(attempts.left()).await {
                Ok(guard) => {
                    let outcome = guard.executor().guarded_async(&mut work).await;
                    (Some(guard), outcome)
                }
                Err(error) => (None, Err(error)),
            };
            let is_retryable = outcome.as_ref().is_err_and(RunError::is_retryable);
            if !self.goes_on(&mut attempts, guard, is_retryable).await {
                return outcome;
            }
        }
    }

    /// Ends the attempt. If another one follows, waits until then.
    async fn goes_on(
        &self,
        attempts: &mut Attempts<'_>,
        guard: Option<LockGuard>,
        is_retryable: bool,
    ) -> bool {
        let context = self.handle().context();
        // Callers that collided once must not collide again.
        let pause = is_retryable.then(|| attempts.next(context.random_below(1_000)));
        let pause = pause.flatten();
        if let Some(guard) = guard {
            if pause.is_some() {
                // The job is not done, and would wait for its own rest.
                guard.forgo_rest();
            }
            let _ = guard.release().await;
        }
        if let Some(pause) = pause {
            // A shutdown ends the pause, and the next attempt learns of it.
            in_runtime(self.runtime(), context.pause(pause)).await;
        }
        // The pause may have ended late: a busy runtime, a machine that slept.
        pause.is_some() && !attempts.left().is_zero()
    }

    async fn held_within<T>(&self, left: Duration) -> Result<LockGuard, RunError<T>> {
        let wait = self.handle().context().settings().wait;
        let acquired = match self.acquire_within(wait.min(left)).await {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) => self.contended().await,
            Err(why) => why,
        };
        Err(RunError::NotAcquired { why: acquired })
    }
}
