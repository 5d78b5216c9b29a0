//! [`own_runs`]: the runs of a guard itself, which every guard that excludes has.

/// `guarded`, `guarded_async` and `commit` of a guard that has a field
/// `executor: OnceLock<Executor>` and a method `executor()`.
macro_rules! own_runs {
    () => {
        /// Runs `work` under the lease, on this thread:
        /// [`Executor::guarded`](crate::Executor::guarded).
        ///
        /// # Errors
        ///
        /// Every outcome except a commit within the lease: see [`RunError`](crate::RunError).
        #[inline]
        pub fn guarded<'env, T>(
            &'env self,
            work: impl FnOnce(&$crate::executor::Tx<'env>) -> Result<T, $crate::executor::Abort>,
        ) -> Result<$crate::executor::Committed<T>, $crate::executor::RunError<T>> {
            self.own_executor().guarded(work)
        }

        /// Awaits `work` under the lease:
        /// [`Executor::guarded_async`](crate::Executor::guarded_async).
        ///
        /// # Errors
        ///
        /// Every outcome except a commit within the lease: see [`RunError`](crate::RunError).
        ///
        /// # Cancel safety
        ///
        /// As [`Executor::guarded_async`](crate::Executor::guarded_async).
        pub async fn guarded_async<T>(
            &self,
            work: impl AsyncFnOnce(&$crate::executor::AsyncTx) -> Result<T, $crate::executor::Abort>,
        ) -> Result<$crate::executor::Committed<T>, $crate::executor::RunError<T>> {
            self.own_executor().guarded_async(work).await
        }

        /// Makes one durable change under the lease: [`Executor::commit`](crate::Executor::commit).
        ///
        /// # Errors
        ///
        /// Every outcome except a commit within the lease or behind a fence: see
        /// [`RunError`](crate::RunError).
        ///
        /// # Cancel safety
        ///
        /// As [`Executor::guarded_async`](crate::Executor::guarded_async).
        pub async fn commit<A, F>(
            &self,
            call: impl FnOnce($crate::executor::CommitPermit) -> F + Send + 'static,
        ) -> Result<$crate::executor::Committed<A::Value>, $crate::executor::RunError<A::Value, A::Refusal>>
        where
            A: $crate::executor::CommitAnswer,
            A::Value: Send + 'static,
            A::Refusal: Into<$crate::BoxError> + Send + 'static,
            F: Future<Output = Result<A, $crate::executor::EffectError>> + Send + 'static,
        {
            self.own_executor().commit(call).await
        }

        fn own_executor(&self) -> &$crate::executor::Executor {
            self.executor.get_or_init(|| self.executor())
        }
    };
}

pub(crate) use own_runs;
