//! [`SqlxDatabase`]: what differs from database to database.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::fence::in_run::before_the_commit;
use leasehold::run::{CommitPermit, Doubt, EffectError, Resolution};
use leasehold::{BoxError, Error, FencingToken, Key};
use sqlx::{Database, Pool, Transaction};

/// A database that has a fence: `sqlx::MySql` (feature `mysql`), `sqlx::Postgres` (feature
/// `postgres`) and `sqlx::Sqlite` (feature `sqlite`). It is sealed.
pub trait SqlxDatabase: Dialect {}

impl<DB: Dialect> SqlxDatabase for DB {}

/// One run of a fence, and its time.
#[derive(Debug)]
pub struct Run<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) permit: &'a CommitPermit,
}

impl Run<'_> {
    /// What is left of the lease.
    pub(crate) fn left(&self) -> Duration {
        let now = self.clock.stamp();
        self.permit.not_after.since(&now)
    }

    /// What comes before `COMMIT`, for as long as the run can still be given its proof that nothing
    /// was applied.
    pub(crate) async fn in_time<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        self.clock
            .timeout(before_the_commit(self.left()), step)
            .await
    }
}

/// What became of a step.
#[derive(Debug)]
pub enum Stop {
    /// It is known.
    Known(EffectError),
    /// The name of the commit says what became of it, if so many standbys have the answer.
    AskTheName { error: BoxError, standbys: i64 },
    /// Nothing was applied: it is fenced if the fence has a larger token.
    AskTheFence(BoxError),
}

impl Stop {
    pub(crate) fn not_applied(error: impl Into<BoxError>) -> Self {
        Self::Known(EffectError::not_applied(error))
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn unknown(error: impl Into<BoxError>) -> Self {
        Self::Known(EffectError::unknown(error))
    }
}

/// The statements of one database. It is public in a private module, so nobody else implements it.
pub trait Dialect: Database {
    /// What the commit needs to know of `enter`.
    type Entered: Send;

    /// The statement that begins a transaction.
    const BEGIN: &'static str;

    /// Enters the fence of every lock of a run, and claims the name of its commit.
    fn enter(
        transaction: &mut Transaction<'_, Self>,
        run: &Run<'_>,
    ) -> impl Future<Output = Result<Self::Entered, Stop>> + Send;

    /// After work that is not to be committed: whether what it sent was in the transaction that
    /// entered, and is undone with it. An error of it is the run's, unless the name of the commit
    /// says that nothing was applied.
    fn witness(
        transaction: &mut Transaction<'_, Self>,
        run: &Run<'_>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Commits, if the transaction is the one that entered and the lease is not over.
    fn commit(
        transaction: Transaction<'_, Self>,
        entered: Self::Entered,
        run: &Run<'_>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Takes back what the fence has put on the connection.
    fn clean(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Raises the fence of a key; the token that it has then.
    fn raise(
        at: At<'_, Self>,
        key: &Key,
        token: FencingToken,
    ) -> impl Future<Output = Result<FencingToken, Error>> + Send;

    /// What an operator runs so that the fence forgets a key.
    fn forget(key: &Key) -> String;

    /// Finds out what became of a commit in doubt, of whose locks it is known that they are the
    /// run's.
    fn resolve(
        at: At<'_, Self>,
        doubt: &Doubt,
    ) -> impl Future<Output = Result<Resolution, Error>> + Send;

    /// Deletes old names. A failure is of no harm: another commit does it.
    fn sweep(pool: Pool<Self>) -> impl Future<Output = ()> + Send;

    /// Fails if the fence of this database may not be called over this connection of a pool. False:
    /// not over this one, and perhaps over another one.
    fn trust(
        _pool: &Pool<Self>,
        _connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send {
        async { Ok(true) }
    }
}

/// Where a call outside of a run goes, and for how long it waits for transactions that are open.
#[derive(Debug)]
pub struct At<'a, DB: Database> {
    pub(crate) pool: &'a Pool<DB>,
    pub(crate) clock: &'a Clock,
    pub(crate) wait: Duration,
    /// How many standbys have to have what is answered, if the server demands no more.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "no other database has standbys")
    )]
    pub(crate) standbys: i64,
}

impl<DB: Database> At<'_, DB> {
    pub(crate) fn same(&self) -> At<'_, DB> {
        At { ..*self }
    }
}
