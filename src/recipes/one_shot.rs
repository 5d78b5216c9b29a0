//! One-shot runs: acquire, run, release.

use crate::executor::{
    Abort, AsyncTx, CommitAnswer, CommitPermit, Committed, EffectError, RunError, Tx,
};
use crate::manager::LockGuard;
use crate::model::error::BoxError;
use crate::recipes::lock::Lock;

impl Lock {
    /// Acquires the lock, runs `work` under it on the calling task, and releases it.
    ///
    /// The work may block the calling task for as long as it takes: renewals have a thread of their
    /// own. The release never replaces the outcome of the work; an unanswered release is repeated
    /// in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{GuardedCell, LockManager, store::MemoryStore};
    ///
    /// let locks = LockManager::new(MemoryStore::new()?)?;
    /// let runs = GuardedCell::new(0);
    /// let done = locks.lock("nightly").guarded(|tx| {
    ///     *tx.write(&runs) += 1;
    ///     Ok("done")
    /// }).await?;
    /// assert_eq!((done.value, *runs.read()), ("done", 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RunError::NotAcquired`] as [`acquire`](Self::acquire) fails; otherwise as
    /// [`Executor::guarded`](crate::Executor::guarded).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if dropped before the work begins, nothing has happened; if dropped after it,
    /// its outcome is final and is not reported. The lock is released in the background.
    pub async fn guarded<T>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        let guard = self.held().await?;
        let outcome = guard.guarded(work);
        let _ = guard.release().await;
        outcome
    }

    /// Acquires the lock, awaits `work` under it, and releases it. Otherwise as
    /// [`guarded`](Self::guarded).
    ///
    /// # Errors
    ///
    /// [`RunError::NotAcquired`] as [`acquire`](Self::acquire) fails; otherwise as
    /// [`Executor::guarded_async`](crate::Executor::guarded_async).
    ///
    /// # Cancel safety
    ///
    /// As [`Executor::guarded_async`](crate::Executor::guarded_async); the lock is released in the
    /// background.
    pub async fn guarded_async<T>(
        &self,
        work: impl AsyncFnOnce(&AsyncTx) -> Result<T, Abort>,
    ) -> Result<Committed<T>, RunError<T>> {
        let guard = self.held().await?;
        let outcome = guard.guarded_async(work).await;
        let _ = guard.release().await;
        outcome
    }

    /// Acquires the lock, makes one durable change under it, and releases it:
    /// [`Executor::commit`](crate::Executor::commit).
    ///
    /// # Errors
    ///
    /// [`RunError::NotAcquired`] as [`acquire`](Self::acquire) fails; otherwise as
    /// [`Executor::commit`](crate::Executor::commit).
    ///
    /// # Cancel safety
    ///
    /// As [`Executor::guarded_async`](crate::Executor::guarded_async); the lock is released in the
    /// background.
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
        let guard = self.held().await?;
        let outcome = guard.commit(call).await;
        let _ = guard.release().await;
        outcome
    }

    async fn held<T, E>(&self) -> Result<LockGuard, RunError<T, E>> {
        self.acquire()
            .await
            .map_err(|why| RunError::NotAcquired { why })
    }
}
