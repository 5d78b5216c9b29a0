//! The fence in a SQLite file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use leasehold::fence::in_run::patience;
use leasehold::fence::sql::sqlite;
use leasehold::fence::too_old;
use leasehold::run::{Doubt, EffectError, Resolution};
use leasehold::{BoxError, Error, ErrorKind, FencingToken, Key};
use sqlx::sqlite::SqliteTransactionManager;
use sqlx::{
    Connection, Executor, Sqlite, SqliteConnection, SqlitePool, Transaction, TransactionManager,
};

use crate::database::{At, Dialect, Run, Stop};
use crate::fence::SqlxFence;
use crate::lent::Lent;
use crate::once::{Once, whole_seconds};

/// What a connection commits.
mod may {
    /// Nothing: whatever ends the transaction, or begins another one, changes nothing.
    pub(super) const COMMIT_NOTHING: u8 = 0;
    /// The transaction that entered, if the lease is not over.
    pub(super) const COMMIT: u8 = 1;
    /// It refused a commit, so that was rolled back.
    pub(super) const NOT_COMMIT: u8 = 2;
}

/// What `enter` leaves behind: the switch of the connection's commit hook.
type Hook = Arc<AtomicU8>;

impl SqlxFence<Sqlite> {
    /// Creates the tables of the fence
    /// ([`sql::sqlite::SCHEMA`](leasehold::fence::sql::sqlite::SCHEMA)), unless they exist. Do it
    /// at each start: a file of an earlier version may lack one.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the file cannot be written.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let created = self.pool().execute(sqlite::SCHEMA).await;
        created
            .map(drop)
            .map_err(|error| failed("create the schema", error))
    }
}

impl Dialect for Sqlite {
    type Entered = Hook;

    const BEGIN: &'static str = sqlite::BEGIN;

    async fn enter(transaction: &mut Transaction<'_, Self>, run: &Run<'_>) -> Result<Hook, Stop> {
        for lock in run.permit.locks() {
            let raised = raise(transaction, &lock.key, lock.token).await;
            let seen = raised.map_err(Stop::not_applied)?;
            if seen > lock.token {
                return Err(Stop::Known(EffectError::Fenced { seen: Some(seen) }));
            }
        }
        let name = run.permit.txn_id.to_string();
        let named = sqlx::query(sqlite::NAME)
            .bind(&name)
            .execute(&mut **transaction)
            .await;
        named.map_err(why_not)?;
        let hook = Hook::new(AtomicU8::new(may::COMMIT_NOTHING));
        let (switch, clock) = (Arc::clone(&hook), run.clock.clone());
        let not_after = run.permit.not_after;
        let mut handle = transaction.lock_handle().await.map_err(Stop::not_applied)?;
        // Inside of every commit of this connection.
        handle.set_commit_hook(move || {
            let is_ours = switch.load(Ordering::Acquire) == may::COMMIT;
            let may_commit = is_ours && !not_after.since(&clock.stamp()).is_zero();
            if !may_commit {
                switch.store(may::NOT_COMMIT, Ordering::Release);
            }
            may_commit
        });
        drop(handle);
        Ok(hook)
    }

    /// There is nothing to see: the hook lets nothing be committed.
    async fn witness(_: &mut Transaction<'_, Self>, _: &Run<'_>) -> Result<(), Stop> {
        Ok(())
    }

    async fn commit(
        mut transaction: Transaction<'_, Self>,
        hook: Hook,
        run: &Run<'_>,
    ) -> Result<(), Stop> {
        let name = run.permit.txn_id.to_string();
        // A transaction that the work began after it had ended ours does not have the name.
        let ours = sqlx::query_scalar::<_, i64>(sqlite::RESOLVE).bind(&name);
        let ours = run.in_time(ours.fetch_optional(&mut *transaction)).await;
        match ours {
            Some(Ok(Some(1))) => {}
            Some(Err(error)) => return Err(Stop::not_applied(error)),
            _ => {
                return Err(Stop::not_applied(
                    "a statement of the work ended the transaction, and was rolled back with it; leave COMMIT and ROLLBACK to the fence",
                ));
            }
        }
        if SqliteTransactionManager::get_transaction_depth(&transaction) != 1 {
            return Err(Stop::not_applied(
                "the work leaked a nested transaction; end it, or drop it",
            ));
        }
        hook.store(may::COMMIT, Ordering::Release);
        let committed = transaction.commit();
        let committed = run.clock.timeout(patience(run.left()), committed).await;
        let refused = hook.load(Ordering::Acquire) == may::NOT_COMMIT;
        match committed {
            Some(Ok(())) => Ok(()),
            _ if refused => Err(Stop::not_applied(
                "the lease was over before the commit, which was rolled back",
            )),
            Some(Err(error)) => Err(ask_the_name(error)),
            None => Err(ask_the_name("the commit was not answered")),
        }
    }

    async fn clean(connection: &mut SqliteConnection) -> sqlx::Result<()> {
        connection.lock_handle().await?.remove_commit_hook();
        Ok(())
    }

    async fn raise(
        at: At<'_, Self>,
        key: &Key,
        token: FencingToken,
    ) -> Result<FencingToken, Error> {
        let raised = at.alone("raise the fence", async |sql| {
            let seen = raise(sql, key, token).await?;
            // Whoever becomes the holder deletes old names.
            (&mut **sql).execute(sqlite::SWEEP).await?;
            Ok(seen)
        });
        raised.await
    }

    fn forget(key: &Key) -> String {
        format!("DELETE FROM leasehold_fence WHERE key = '{key}'")
    }

    async fn resolve(at: At<'_, Self>, doubt: &Doubt) -> Result<Resolution, Error> {
        let name = &doubt.txn_id.to_string();
        let applied = at.alone("resolve a commit", async |sql| {
            let void = sqlx::query(sqlite::VOID).bind(name);
            void.execute(&mut **sql).await?;
            let applied = sqlx::query_scalar::<_, i64>(sqlite::RESOLVE).bind(name);
            applied.fetch_optional(&mut **sql).await
        });
        match applied.await? {
            None => Err(too_old(doubt)),
            Some(1) => Ok(Resolution::Applied),
            Some(_) => Ok(Resolution::NotApplied),
        }
    }

    /// A raise does it too, but a holder that stays raises once.
    async fn sweep(pool: SqlitePool) {
        let swept = async {
            let mut connection = Lent::<Self>::by(&pool).await?;
            let mut sql = connection.begin_with(sqlite::BEGIN).await?;
            (&mut *sql).execute(sqlite::SWEEP).await?;
            sql.commit().await?;
            connection.give_back();
            sqlx::Result::Ok(())
        };
        let _: sqlx::Result<()> = swept.await;
    }
}

impl At<'_, Sqlite> {
    /// A transaction of the fence's own.
    async fn alone<T>(
        &self,
        what: &str,
        statements: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> sqlx::Result<T>,
    ) -> Result<T, Error> {
        let done = async {
            let mut connection = Lent::by(self.pool).await?;
            let mut sql = connection.begin_with(sqlite::BEGIN).await?;
            let answer = statements(&mut sql).await?;
            sql.commit().await?;
            connection.give_back();
            Ok(answer)
        };
        match self.clock.timeout(self.wait, done).await {
            Some(done) => done.map_err(|error| failed(what, error)),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                format!("another transaction did not end in time: call={what}; try again"),
            )),
        }
    }
}

/// Raises the fence of a key in an open transaction; the token that it has then.
async fn raise(
    sql: &mut Transaction<'_, Sqlite>,
    key: &Key,
    token: FencingToken,
) -> sqlx::Result<FencingToken> {
    // A token is below 2^53.
    let number = token.number().cast_signed();
    let raise = sqlx::query(sqlite::RAISE).bind(key.as_str()).bind(number);
    raise.execute(&mut **sql).await?;
    let seen = sqlx::query_scalar::<_, i64>(sqlite::SEEN).bind(key.as_str());
    let seen = seen.fetch_one(&mut **sql).await?;
    let seen = FencingToken::new(seen.cast_unsigned());
    seen.map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Why the name was not claimed.
fn why_not(error: sqlx::Error) -> Stop {
    let is_taken = matches!(&error, sqlx::Error::Database(answer) if answer.is_unique_violation());
    // It was resolved as void, or another transaction of this run has committed under it.
    if is_taken {
        return ask_the_name(error);
    }
    Stop::not_applied(error)
}

fn ask_the_name(error: impl Into<BoxError>) -> Stop {
    Stop::AskTheName {
        error: error.into(),
        standbys: 0,
    }
}

fn failed(what: &str, error: sqlx::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("sqlite refused: call={what}; try again"),
    )
    .because(error)
}

impl Once for Transaction<'_, Sqlite> {
    async fn once(&mut self, name: &str, keep: Duration) -> sqlx::Result<bool> {
        let once = sqlx::query(sqlite::ONCE).bind(name);
        let once = once.bind(whole_seconds(keep));
        Ok(once.execute(&mut **self).await?.rows_affected() == 1)
    }
}
