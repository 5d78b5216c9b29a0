//! A fence in a SQLite file.

use leasehold::run::{Applied, CommitPermit, Doubt, EffectError, Resolution};
use leasehold::fence::sql::sqlite;
use leasehold::fence::{Fence, Resolve};
use leasehold::{Error, ErrorKind, FencingToken, Key, Ended};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction};

use crate::Work;

/// Tie it to the lock with `Lock::fence`, and commit with
/// `tx.commit_with(move |permit| fence.commit(permit, work))`.
#[derive(Clone, Debug)]
pub struct SqliteFence(SqlitePool);

/// Why a key was not entered.
enum Stop {
    Newer(FencingToken),
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Stop {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// Raises the fence of a key in an open transaction.
async fn raise(sql: &mut SqliteConnection, key: &Key, token: FencingToken) -> Result<(), Stop> {
    // A token is below 2^53.
    let number = token.number().cast_signed();
    let raise = sqlx::query(sqlite::RAISE).bind(key.as_str()).bind(number);
    raise.execute(&mut *sql).await?;
    let seen = sqlx::query_scalar(sqlite::SEEN).bind(key.as_str());
    let seen: i64 = seen.fetch_one(sql).await?;
    match FencingToken::new(seen.cast_unsigned()) {
        Ok(seen) if seen > token => Err(Stop::Newer(seen)),
        Ok(_) => Ok(()),
        Err(error) => Err(Stop::Sql(sqlx::Error::Decode(error.into()))),
    }
}

impl SqliteFence {
    /// Creates the tables of the fence, unless they exist.
    pub async fn create(pool: SqlitePool) -> sqlx::Result<Self> {
        sqlx::raw_sql(sqlite::SCHEMA).execute(&pool).await?;
        Ok(Self(pool))
    }

    async fn begin(&self) -> sqlx::Result<Transaction<'static, Sqlite>> {
        self.0.begin_with(sqlite::BEGIN).await
    }

    /// The commit of a run: enters the fence of every lock, does the work, and commits.
    pub async fn commit<F>(self, permit: CommitPermit, work: F) -> Result<Applied, EffectError>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c> + Send,
    {
        // A transaction that is dropped is rolled back, so everything before `COMMIT` is proof.
        let mut sql = self.begin().await.map_err(EffectError::not_applied)?;
        for lock in permit.locks() {
            match raise(&mut sql, &lock.key, lock.token).await {
                Ok(()) => {}
                Err(Stop::Newer(seen)) => return Err(EffectError::Fenced { seen: Some(seen) }),
                Err(Stop::Sql(error)) => return Err(EffectError::not_applied(error)),
            }
        }
        let name = sqlx::query(sqlite::NAME).bind(permit.txn_id.to_string());
        name.execute(&mut *sql)
            .await
            .map_err(EffectError::not_applied)?;
        work(&mut sql).await.map_err(EffectError::not_applied)?;
        let Err(error) = sql.commit().await else {
            return Ok(Applied::fenced());
        };
        match self.resolve_name(&permit.txn_id.to_string()).await {
            Ok(Resolution::Applied) => Ok(Applied::fenced()),
            Ok(Resolution::NotApplied) => Err(EffectError::not_applied(error)),
            Err(_) => Err(EffectError::unknown(error)),
        }
    }

    async fn resolve_name(&self, name: &str) -> sqlx::Result<Resolution> {
        let mut sql = self.begin().await?;
        sqlx::query(sqlite::VOID)
            .bind(name)
            .execute(&mut *sql)
            .await?;
        let applied = sqlx::query_scalar(sqlite::RESOLVE).bind(name);
        let applied: i64 = applied.fetch_one(&mut *sql).await?;
        sql.commit().await?;
        Ok(match applied {
            1 => Resolution::Applied,
            _ => Resolution::NotApplied,
        })
    }
}

impl Fence for SqliteFence {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        let raised = async {
            let mut sql = self.begin().await?;
            raise(&mut sql, key, token).await?;
            // Whoever becomes the holder deletes old names.
            sqlx::query(sqlite::SWEEP).execute(&mut *sql).await?;
            Ok(sql.commit().await?)
        };
        raised.await.map_err(|stop| match stop {
            Stop::Newer(seen) => Error::new(
                ErrorKind::Lost(Ended::Gone),
                format!("there is a newer holder: key={key} token={token} seen={seen}"),
            ),
            Stop::Sql(error) => Error::new(ErrorKind::Unavailable, error.to_string()),
        })
    }
}

impl Resolve for SqliteFence {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        doubt.check()?;
        let resolved = self.resolve_name(&doubt.txn_id.to_string()).await;
        resolved.map_err(|error| match error {
            sqlx::Error::RowNotFound => Error::new(
                ErrorKind::Invalid,
                format!(
                    "the name of the commit was deleted; check the data: txn_id={}",
                    doubt.txn_id
                ),
            ),
            error => Error::new(ErrorKind::Unavailable, error.to_string()),
        })
    }
}
