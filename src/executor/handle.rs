//! [`Executor`]: the right to begin runs under one lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::abort::Abort;
use super::answer::{CommitAnswer, CommitValue};
use super::async_tx::AsyncTx;
use super::awaiting;
use super::blocking;
use super::cause::Cause;
use super::outcome::Committed;
use super::run_error::RunError;
use super::tx::Tx;
use crate::lease::{Lease, LeaseError, Running};
use crate::model::commit::{CommitError, CommitPermit};
use crate::model::error::BoxError;
use crate::model::run_sink::RunSink;

/// Runs work only while its lease is live, and takes it back if it is not.
///
/// Hand a clone to every worker, on every core: threads with a clone each share nothing that they write. When the hold
/// ends, runs in progress end first; from then on every run is refused, for good, also when the lock is taken again: that is
/// another lease with another executor.
///
/// See the [module](crate::executor) for every way out of a run.
pub struct Executor {
    shared: Arc<Shared>,
}

/// What a run needs of its executor.
pub(super) struct Shared {
    running: Running,
    outbox: Arc<dyn RunSink>,
    is_watched: bool,
    commit_budget: Duration,
}

impl Shared {
    #[inline]
    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    #[inline]
    pub(super) fn lease(&self) -> &Lease {
        self.running.lease()
    }

    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched
    }

    pub(super) fn outbox(&self) -> &Arc<dyn RunSink> {
        &self.outbox
    }

    /// Entry: the fast clock, because the strict ones judge the commit.
    #[inline]
    pub(super) fn may_begin(&self) -> Result<(), LeaseError> {
        let remaining = self.lease().look_fast()?;
        if remaining >= self.commit_budget {
            return Ok(());
        }
        Err(LeaseError::TooShort {
            remaining,
            needed: self.commit_budget,
        })
    }

    /// The last look before a commit (I4, I5). Answers what is left.
    #[inline]
    pub(super) fn may_commit(&self) -> Result<Duration, LeaseError> {
        if self.lease().is_closed() {
            return Err(self.ending());
        }
        self.lease().ensure(self.commit_budget)
    }

    #[cold]
    pub(super) fn ending(&self) -> LeaseError {
        let lost = self.lease().lost_reason();
        lost.map_or(LeaseError::Ending, LeaseError::Lost)
    }
}

impl Executor {
    /// An executor under `lease`, which leaves what it cannot finish in `outbox`. A run is not begun and not committed with
    /// less than `commit_budget` left.
    pub(crate) fn new(lease: Lease, outbox: Arc<dyn RunSink>, commit_budget: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                running: lease.register(),
                is_watched: outbox.is_watched(),
                outbox,
                commit_budget,
            }),
        }
    }

    #[cfg(all(test, feature = "test-util"))]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The lease that all runs are under.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.shared.lease()
    }

    /// Runs `work` under the lease, on this thread. It needs no runtime.
    ///
    /// The work is committed if it returns `Ok` and the lease is live then, with the commit budget left. Otherwise what it did
    /// through the [`Tx`] is taken back. A panic takes it back too, and goes on.
    ///
    /// Runs may be nested, and are then independent: the inner commits first and stays committed when the outer does not; if
    /// both write the same cell, the outer conflicts.
    ///
    /// # Errors
    ///
    /// Every way out but a commit within the lease: see [`RunError`].
    #[inline]
    pub fn guarded<'env, T>(
        &'env self,
        work: impl FnOnce(&Tx<'env>) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        blocking::run(&self.shared, work, Abort::into_cause)
    }

    /// [`guarded`](Self::guarded) for work with an error type of its own, which comes back as [`Cause::Failed`].
    ///
    /// Give it `From<LeaseError>` to use `tx.check()?` inside.
    ///
    /// # Errors
    ///
    /// Every way out but a commit within the lease: see [`RunError`].
    #[inline]
    pub fn guarded_as<'env, E: 'static, T>(
        &'env self,
        work: impl FnOnce(&Tx<'env>) -> Result<T, E>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        blocking::run(&self.shared, work, Cause::Failed)
    }

    /// Awaits `work` under the lease. Otherwise as [`guarded`](Self::guarded).
    ///
    /// The future is `Send` when that of the work is, and may borrow from its surroundings.
    ///
    /// # Errors
    ///
    /// Every way out but a commit within the lease: see [`RunError`].
    ///
    /// # Panics
    ///
    /// If the work panics. Time limits (of a step, a commit, a compensation) need a tokio runtime with its time driver.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the commit call has begun, nothing is committed: local undo runs at once, inside the drop, and
    /// compensations are handed to the lock's manager, which awaits them before it releases the lock. Dropped during the commit
    /// call, the commit is in doubt: the hold is left to expire, and a debt tells of it.
    pub async fn guarded_async<T>(
        &self,
        work: impl AsyncFnOnce(&AsyncTx) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        awaiting::run(&self.shared, work, Abort::into_cause).await
    }

    /// [`guarded_async`](Self::guarded_async) for work with an error type of its own, which comes back as [`Cause::Failed`].
    ///
    /// # Errors
    ///
    /// Every way out but a commit within the lease: see [`RunError`].
    ///
    /// # Panics
    ///
    /// As [`guarded_async`](Self::guarded_async).
    ///
    /// # Cancel safety
    ///
    /// As [`guarded_async`](Self::guarded_async).
    pub async fn guarded_async_as<E: 'static, T>(
        &self,
        work: impl AsyncFnOnce(&AsyncTx) -> Result<T, E>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        awaiting::run(&self.shared, work, Cause::Failed).await
    }

    /// A run that is nothing but its commit: makes one durable change under the lease, and gives what it computed.
    ///
    /// `call` is as in [`AsyncTx::commit_with`](super::Tx::commit_with). Its own decision against the commit comes back as
    /// [`Cause::Failed`], in its own type.
    ///
    /// # Errors
    ///
    /// Every way out except a commit within the lease or behind a fence: see [`RunError`].
    ///
    /// # Panics
    ///
    /// As [`guarded_async`](Self::guarded_async).
    ///
    /// # Cancel safety
    ///
    /// As [`guarded_async`](Self::guarded_async).
    pub async fn commit<A, F>(
        &self,
        call: impl FnOnce(CommitPermit) -> F + Send + 'static,
    ) -> Result<Committed<A::Value>, RunError<A::Value, A::Refusal>>
    where
        A: CommitAnswer,
        A::Value: Send + 'static,
        A::Refusal: Into<BoxError> + Send + 'static,
        F: Future<Output = Result<A, CommitError>> + Send + 'static,
    {
        let done = self.guarded_async_as(async move |tx| Ok(tx.commit_with(call)));
        let value = |value: CommitValue<A::Value>| match value.take() {
            Some(value) => value,
            None => unreachable!("a commit that was applied has left its value"),
        };
        match done.await {
            Ok(done) => Ok(Committed {
                value: value(done.value),
                token: done.token,
                slack: done.slack,
                proof: done.proof,
            }),
            Err(error) => Err(error.map(value)),
        }
    }
}

/// The clone counts its runs in a place of its own.
impl Clone for Executor {
    fn clone(&self) -> Self {
        Self::new(
            self.lease().clone(),
            Arc::clone(&self.shared.outbox),
            self.shared.commit_budget,
        )
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("lease", self.lease())
            .field("commit_budget", &self.shared.commit_budget)
            .finish_non_exhaustive()
    }
}
