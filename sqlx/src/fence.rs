//! [`SqlxFence`]: transactions of a pool of sqlx that commit only while their token is the newest.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve, newer_holder};
use leasehold::run::{Applied, CommitPermit, Doubt, EffectError, Resolution};
use leasehold::{BoxError, Error, FencingToken, Key};
use sqlx::{Pool, Transaction};

use crate::commit;
use crate::database::{At, SqlxDatabase};

/// How long a raise waits for the transactions of former holders, unless [`wait`](SqlxFence::wait)
/// says otherwise.
const WAIT: Duration = Duration::from_secs(5);

/// After how many commits old names are deleted, and after the first.
const SWEEP_EVERY: u32 = 64;

/// Transactions of a pool of sqlx that commit only while their token is the newest of its key.
///
/// `DB` is `sqlx::MySql` (feature `mysql`), `sqlx::Postgres` (feature `postgres`) or
/// `sqlx::Sqlite` (feature `sqlite`). Make it over the pool of the data, tie it to the lock with
/// [`Lock::fence`](leasehold::Lock::fence), and give [`transaction`](Self::transaction) to
/// [`Lock::commit`](leasehold::Lock::commit). The example is on the [first page](crate).
///
/// A commit that is not answered is resolved within the run if there is time, and later by
/// [`Resolve`].
///
/// A connection goes back to the pool only after its transaction has ended and every answer has
/// come; any other one is closed. So is one on MariaDB that a `USE` has left in another database.
/// What the work leaves in its session (`SET`, advisory locks, temporary tables) stays there, as
/// after every transaction of sqlx: `after_release` of the pool is the place to reset it.
///
/// # What is not promised
///
/// What is changed without the fence is not protected.
///
/// Must be called inside a tokio runtime with time and io enabled. Cloning is cheap.
pub struct SqlxFence<DB: SqlxDatabase> {
    shared: Arc<Shared<DB>>,
}

struct Shared<DB: SqlxDatabase> {
    pool: Pool<DB>,
    clock: Clock,
    wait: Duration,
    commits: AtomicU32,
}

/// What a [transaction](SqlxFence::transaction) is to a run: its commit call.
pub type SqlxCommit<V, R> = BoxFuture<'static, Result<Result<Applied<V>, R>, EffectError>>;

impl<DB: SqlxDatabase> SqlxFence<DB> {
    /// A fence over a pool of the database of the data. It sends nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the system has no clock that a lease needs.
    pub fn new(pool: Pool<DB>) -> Result<Self, Error> {
        Ok(Self {
            shared: Arc::new(Shared {
                pool,
                clock: Clock::system()?,
                wait: WAIT,
                commits: AtomicU32::new(0),
            }),
        })
    }

    /// Sets how long [`raise`](Fence::raise) and [`resolve`](Resolve::resolve) wait for a
    /// transaction that is open; 5 s by default. On SQLite the `busy_timeout` of the pool ends the
    /// wait too.
    ///
    /// A lock gives its first raise [`request_timeout`](leasehold::Settings::request_timeout), and
    /// each further one [twice as long](leasehold::Lock::fence): so this limits the later ones.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        let shared = Shared {
            pool: self.shared.pool.clone(),
            clock: self.shared.clock.clone(),
            wait,
            commits: AtomicU32::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The commit of a guarded run: a transaction that enters the fence of every lock of the run,
    /// does `work`, and commits. Give it to [`Lock::commit`](leasehold::Lock::commit) or to
    /// [`commit_with`](leasehold::AsyncTx::commit_with).
    ///
    /// The work is as that of [`Connection::transaction`](sqlx::Connection::transaction): `Ok`
    /// commits, and the value comes out of the run; `Err` rolls back, and the error comes out as
    /// [`Cause::Failed`](leasehold::Cause::Failed). It is boxed:
    /// [`transaction_as`](Self::transaction_as) keeps its type.
    ///
    /// `COMMIT` and `ROLLBACK` are not for you to send: the fence's lock ends with the transaction.
    /// Savepoints are yours, except `leasehold_work` on PostgreSQL, MariaDB and MySQL. On the
    /// latter two DDL, `LOCK TABLES` and others commit as well: keep them out of the work.
    pub fn transaction<V, F>(
        &self,
        work: F,
    ) -> impl FnOnce(CommitPermit) -> SqlxCommit<V, BoxError> + Send + 'static + use<DB, V, F>
    where
        V: Send + 'static,
        F: for<'c> FnOnce(&'c mut Transaction<'_, DB>) -> BoxFuture<'c, Result<V, BoxError>>
            + Send
            + 'static,
    {
        self.transaction_as(work)
    }

    /// [`transaction`](Self::transaction) for work with an error type of its own.
    pub fn transaction_as<R, V, F>(
        &self,
        work: F,
    ) -> impl FnOnce(CommitPermit) -> SqlxCommit<V, R> + Send + 'static + use<DB, R, V, F>
    where
        R: Send + 'static,
        V: Send + 'static,
        F: for<'c> FnOnce(&'c mut Transaction<'_, DB>) -> BoxFuture<'c, Result<V, R>>
            + Send
            + 'static,
    {
        let fence = self.clone();
        move |permit| {
            let committed = async move {
                let at = fence.at();
                let committed = commit::commit(&at, &permit, work);
                let committed = permit.used_for(committed).await;
                if matches!(committed, Ok(Ok(_))) {
                    fence.sweep_now_and_then();
                }
                committed
            };
            Box::pin(committed)
        }
    }

    pub(crate) fn pool(&self) -> &Pool<DB> {
        &self.shared.pool
    }

    pub(crate) fn at(&self) -> At<'_, DB> {
        At {
            pool: &self.shared.pool,
            clock: &self.shared.clock,
            wait: self.shared.wait,
            standbys: 0,
        }
    }

    /// Beside the run, which has its lease.
    fn sweep_now_and_then(&self) {
        let commits = self.shared.commits.fetch_add(1, Ordering::Relaxed);
        // The first one too: a process that starts, commits and ends has no 64th.
        if commits == 0 || commits % SWEEP_EVERY == SWEEP_EVERY - 1 {
            tokio::spawn(DB::sweep(self.shared.pool.clone()));
        }
    }
}

impl<DB: SqlxDatabase> Fence for SqlxFence<DB> {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        let seen = DB::raise(self.at(), key, token).await?;
        if seen > token {
            return Err(newer_holder(key, token, seen, || DB::forget(key)));
        }
        Ok(())
    }
}

impl<DB: SqlxDatabase> Resolve for SqlxFence<DB> {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        doubt.check()?;
        DB::resolve(self.at(), doubt).await
    }
}

impl<DB: SqlxDatabase> Clone for SqlxFence<DB> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<DB: SqlxDatabase> fmt::Debug for SqlxFence<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the pool: it shows its options, and they may show a password.
        f.debug_struct("SqlxFence")
            .field("database", &DB::NAME)
            .field("wait", &self.shared.wait)
            .finish_non_exhaustive()
    }
}
