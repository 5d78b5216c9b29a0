//! [`Executor`]: the right to begin runs under one lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::context::RunContext;
use super::outcome::{Abort, Cause, Committed, RunError};
use super::run::{AsyncTx, awaiting, blocking};
use super::tx::{CommitAnswer, CommitValue, Tx};
use crate::lease::Lease;
use crate::model::commit::{CommitPermit, EffectError};
use crate::model::error::BoxError;
use crate::model::run_sink::RunSink;

/// Runs work only while its lease is live, and undoes it if it is not.
///
/// Give a clone to every worker, on every core: threads that have a clone each share no memory that
/// they write.
///
/// When the hold ends, runs in progress end first. From then on every run is refused, for good. To
/// acquire the lock again gives another lease with another executor.
///
/// **Runs of one lease overlap**, also those of clones on other threads. Data in a
/// [`GuardedCell`](crate::GuardedCell) is safe: the second of two runs that wrote the same cell
/// conflicts. Data that the work changes in place is not: when a run fails, its
/// [`snapshot`](Tx::snapshot) restores the value from before and erases what another run committed
/// in between. For such data use [`in_turn`](Self::in_turn), whose runs wait for each other.
///
/// See the [module](crate::run) for every outcome of a run.
pub struct Executor {
    context: Arc<RunContext>,
}

impl Executor {
    /// An executor under `lease`, which passes what it cannot finish to `sink`. A run is not begun
    /// and not committed with less than `commit_budget` left.
    pub(crate) fn new(lease: &Lease, sink: Arc<dyn RunSink>, commit_budget: Duration) -> Self {
        Self {
            context: Arc::new(RunContext::new(lease, sink, commit_budget)),
        }
    }

    /// The lease that all runs are under.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.context.lease()
    }

    /// An executor whose runs take turns: a run begins when no other run in turn of these locks is
    /// in progress, in this process. Use it for data that the work changes in place, with
    /// [`snapshot`](Tx::snapshot) or [`undo`](Tx::undo).
    ///
    /// The turn belongs to the lease: all executors in turn of one guard wait for each other,
    /// clones included. Runs of an executor that is *not* in turn do not wait and are not waited
    /// for. A run that waits for its turn has not begun. It is refused when the lease is over. In
    /// [`guarded`](Self::guarded) the thread waits, also in an async task: use
    /// [`guarded_async`](Self::guarded_async) there.
    ///
    /// Two *locks* do not wait for each other: data that is changed under both needs a run under
    /// [both](crate::multi::MultiLock).
    ///
    /// A run in turn that is begun inside another one of the same lock would wait for itself; it is
    /// refused ([`Cause::Refused`]), unless it runs on another thread or task.
    ///
    /// ```
    /// # use leasehold::{LockManager, store::MemoryStore};
    /// # use std::sync::{Arc, Mutex};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::new(MemoryStore::new()?)?;
    /// let guard = locks.lock("stock").acquire().await?;
    /// let stock = Arc::new(Mutex::new(10));
    /// let executor = guard.executor().in_turn();
    /// executor.guarded(|tx| {
    ///     tx.snapshot(Arc::clone(&stock));
    ///     *stock.lock().unwrap() -= 1;
    ///     Ok(())
    /// })?;
    /// assert_eq!(*stock.lock().unwrap(), 9);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn in_turn(&self) -> Self {
        Self {
            context: Arc::new(self.context.in_turn()),
        }
    }

    /// Runs `work` under the lease, on this thread. It needs no runtime.
    ///
    /// The work is committed if it returns `Ok` and the lease is live then, with the commit budget
    /// left. Otherwise what it did through the [`Tx`] is undone, and what it did outside of it
    /// remains. A panic is undone too, and continues as a panic.
    ///
    /// Runs may be nested, and are then independent: the inner one commits first and stays
    /// committed if the outer one does not; if both write the same cell, the outer one conflicts.
    ///
    /// # Errors
    ///
    /// Every outcome except a commit within the lease: see [`RunError`].
    #[inline]
    pub fn guarded<'env, T>(
        &'env self,
        work: impl FnOnce(&Tx<'env>) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        blocking::run(&self.context, work)
    }

    /// Awaits `work` under the lease. Otherwise as [`guarded`](Self::guarded).
    ///
    /// The future is `Send` if that of the work is, and may borrow from its surroundings. Outside
    /// of any tokio runtime, and in one without its time driver, it uses the manager's timers.
    ///
    /// # Errors
    ///
    /// Every outcome except a commit within the lease: see [`RunError`].
    ///
    /// # Panics
    ///
    /// If the work panics.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the commit call has begun, nothing is committed: local undo runs at once,
    /// inside the drop, and compensations are passed to the lock's manager, which awaits them
    /// before it releases the lock. Dropped during the commit call, the commit is in doubt: the
    /// hold is not released but expires, and a debt reports it.
    pub async fn guarded_async<T>(
        &self,
        work: impl AsyncFnOnce(&AsyncTx) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        awaiting::run(&self.context, work, Abort::into_cause).await
    }

    /// A run that consists of its commit only: makes one durable change under the lease, and
    /// returns what it computed.
    ///
    /// `call` is as in [`AsyncTx::commit_with`](AsyncTx::commit_with). Its own decision against the
    /// commit is returned in [`Cause::Failed`], in its own type.
    ///
    /// # Errors
    ///
    /// Every outcome except a commit within the lease or behind a fence: see [`RunError`].
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
        F: Future<Output = Result<A, EffectError>> + Send + 'static,
    {
        let call = async move |tx: &AsyncTx| Ok(tx.commit_with(call));
        let done = awaiting::run(&self.context, call, Cause::Failed);
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
                locks: done.locks,
            }),
            Err(error) => Err(error.map(value)),
        }
    }
}

/// The clone counts its runs separately.
impl Clone for Executor {
    fn clone(&self) -> Self {
        Self {
            context: Arc::new(self.context.another()),
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("lease", self.lease())
            .field("commit_budget", &self.context.commit_budget())
            .finish_non_exhaustive()
    }
}
