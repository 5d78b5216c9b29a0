//! [`Once`]: what a transaction does once.

use std::time::Duration;

/// For fenced transactions: claims a name for what the transaction does once.
pub trait Once {
    /// Claims `name` for what this transaction does once: true for the first transaction that is
    /// committed with it, false for each one after that, for `keep`. Then return without a change.
    /// So a job that is repeated (its holder died, or a timer fired twice) has its effect exactly
    /// once:
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn example(lock: leasehold::Lock, fence: leasehold_sqlx::SqlxFence<sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold_sqlx::Once;
    /// # use std::time::Duration;
    /// let month = Duration::from_secs(30 * 86_400);
    /// let done = lock.commit(fence.transaction(move |tx| {
    ///     Box::pin(async move {
    ///         if !tx.once("interest@2026-11-26", month).await? {
    ///             return Ok("was done already");
    ///         }
    ///         let pay = "UPDATE account SET cents = cents * 101 / 100";
    ///         sqlx::query(pay).execute(&mut **tx).await?;
    ///         Ok("done now")
    ///     })
    /// }));
    /// println!("{}", done.await?.value);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The name is text of your own, up to 1,000 bytes, and one for the whole database, whatever
    /// the lock. It is written in this transaction, and gone if that is rolled back. A call waits
    /// for an open transaction that claimed the same name.
    ///
    /// # Errors
    ///
    /// Those of a statement. Return it with `?`: the transaction is rolled back.
    ///
    /// # Cancel safety
    ///
    /// As every statement of sqlx: the transaction has to be rolled back then.
    ///
    /// # Not promised
    ///
    /// The database's clock ends `keep` (100 years at most): set forward, it forgets names early. A
    /// name has to be kept longer than a repetition may come.
    fn once(
        &mut self,
        name: &str,
        keep: Duration,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;
}

/// How long a name is kept at most.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) const LONGEST_KEEP: Duration = Duration::from_secs(100 * 365 * 86_400);

/// No less than asked: the database counts whole seconds, so its clock is behind by up to one.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn whole_seconds(keep: Duration) -> i64 {
    let keep = keep.min(LONGEST_KEEP);
    let behind = i64::from(!keep.is_zero());
    i64::try_from(keep.as_millis().div_ceil(1000)).unwrap_or(i64::MAX - behind) + behind
}
