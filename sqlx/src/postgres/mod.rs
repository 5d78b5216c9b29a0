//! The fence in a PostgreSQL database.
//!
//! Each statement of the fence is text without parameters: several go in one request, and none is
//! prepared, so a pooler may share connections between transactions.

mod commit;
mod fault;
mod standbys;
mod text;
mod trust;

use std::time::Duration;

use leasehold::fence::sql::postgres;
use leasehold::run::{Doubt, Resolution};
use leasehold::{Error, ErrorKind, FencingToken, Key};
use sqlx::postgres::PgRow;
use sqlx::{Decode, Executor, PgConnection, PgPool, Postgres, Row, Transaction, Type};

use crate::database::{At, Dialect, Run, Stop};
use crate::fence::SqlxFence;
use crate::lent::Lent;
use crate::once::{LONGEST_KEEP, Once};
use commit::Entered;
use standbys::{NAMES, Standbys};
use text::{columns, milliseconds, number, one_row};

/// How often a call is repeated after a serialization failure or a deadlock, which ended it without
/// an effect.
const TRIES: u32 = 5;

impl SqlxFence<Postgres> {
    /// Creates the tables and functions of the fence
    /// ([`sql::postgres::SCHEMA`](leasehold::fence::sql::postgres::SCHEMA)), unless they exist.
    /// Needs the right to create a schema; everybody else needs USAGE on the schema `leasehold`.
    ///
    /// # Errors
    ///
    /// `Denied` if the role may not, `Unavailable` if the server cannot be reached, if another
    /// session locks a table of the schema for longer than the fence [waits](Self::wait), or if no
    /// answer comes within that time and a second.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is done as a whole or not at all.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let at = self.at();
        // Two that create it at once would meet in the catalog, and the second has to see what the
        // first did.
        let text = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {}; \
             SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('leasehold')); {} COMMIT;",
            milliseconds(at.wait),
            postgres::SCHEMA
        );
        let created = async {
            let mut connection = Lent::by(self.pool()).await?;
            (&mut *connection).execute(&*text).await?;
            connection.give_back();
            Ok(())
        };
        let limit = at.wait.saturating_add(Duration::from_secs(1));
        match at.clock.timeout(limit, created).await {
            Some(created) => created.map_err(fault::not_created),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                "postgresql did not answer in time: call=\"create the schema\"; check that the server runs, and try again",
            )),
        }
    }
}

impl Dialect for Postgres {
    type Entered = Entered;

    const BEGIN: &'static str = "BEGIN";

    async fn enter(
        transaction: &mut Transaction<'_, Self>,
        run: &Run<'_>,
    ) -> Result<Entered, Stop> {
        commit::enter(transaction, run).await
    }

    async fn witness(transaction: &mut Transaction<'_, Self>, run: &Run<'_>) -> Result<(), Stop> {
        commit::witness(transaction, run).await
    }

    async fn commit(
        transaction: Transaction<'_, Self>,
        entered: Entered,
        run: &Run<'_>,
    ) -> Result<(), Stop> {
        commit::commit(transaction, entered, run).await
    }

    async fn clean(_: &mut PgConnection) -> sqlx::Result<()> {
        Ok(())
    }

    async fn raise(
        at: At<'_, Self>,
        key: &Key,
        token: FencingToken,
    ) -> Result<FencingToken, Error> {
        let (token, wait) = (number(token), milliseconds(at.wait));
        // No letter of a key ends a string.
        let statement = format!("leasehold.raise('{key}', {token}, {wait})");
        let seen: i64 = at.ask("raise the fence", &statement).await?;
        FencingToken::new(u64::try_from(seen).unwrap_or(u64::MAX))
    }

    fn forget(key: &Key) -> String {
        format!(
            "DELETE FROM leasehold.fence WHERE key = '{key}'; DELETE FROM leasehold.swept WHERE key = '{key}'; DELETE FROM leasehold.txn WHERE '{key}' = ANY (keys)"
        )
    }

    async fn resolve(at: At<'_, Self>, doubt: &Doubt) -> Result<Resolution, Error> {
        let (keys, tokens) = columns(&doubt.locks);
        let (name, wait) = (doubt.txn_id, milliseconds(at.wait));
        let statement = format!("leasehold.resolve({keys}, {tokens}, '{name}', {wait})");
        Ok(match at.ask("resolve a commit", &statement).await? {
            true => Resolution::Applied,
            false => Resolution::NotApplied,
        })
    }

    async fn sweep(pool: PgPool) {
        let swept = async {
            // A serializable sweep would fail the runs beside it.
            let mut transaction = pool
                .begin_with("BEGIN ISOLATION LEVEL READ COMMITTED")
                .await?;
            transaction.execute(postgres::SWEEP).await?;
            transaction.commit().await
        };
        let _ = swept.await;
    }

    async fn trust(pool: &PgPool, connection: &mut PgConnection) -> sqlx::Result<bool> {
        trust::trust(pool, connection).await.map(|()| true)
    }
}

impl At<'_, Postgres> {
    /// One call of a function, which changes nothing if it fails and no more if it is repeated, and
    /// which the standbys have when this returns.
    async fn ask<T>(&self, what: &str, call: &str) -> Result<T, Error>
    where
        T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send,
    {
        let statement = format!("SELECT {call} AS answer, {NAMES} AS names");
        let mut tries = 0;
        loop {
            tries += 1;
            let asked = async {
                let mut connection = Lent::by(self.pool).await?;
                let row = one_row(&mut connection, &statement).await?;
                Ok((connection, row))
            };
            let limit = self.wait.saturating_add(Duration::from_secs(1));
            let (mut connection, row) = match self.clock.timeout(limit, asked).await {
                Some(Ok(answered)) => answered,
                Some(Err(error)) if fault::is_transient(&error) && tries < TRIES => continue,
                Some(Err(error)) => return Err(fault::into_error(what, error)),
                None => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        format!("postgresql did not answer in time: call={what}; try again"),
                    ));
                }
            };
            let standbys = Standbys::of(&row).max(Standbys(self.standbys));
            if !standbys.have_it(&mut connection, self.clock).await {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "the standbys are not seen to have it: call={what}; try again, and grant pg_monitor if the role may not see them"
                    ),
                ));
            }
            connection.give_back();
            return read(&row);
        }
    }
}

fn read<T>(row: &PgRow) -> Result<T, Error>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get("answer").map_err(|error| {
        let text = "a function of the schema leasehold answered what it never does; compare the schema with fence::sql::postgres::SCHEMA";
        Error::new(ErrorKind::Corrupt, text).because(error)
    })
}

impl Once for Transaction<'_, Postgres> {
    async fn once(&mut self, name: &str, keep: Duration) -> sqlx::Result<bool> {
        let keep = i64::try_from(keep.min(LONGEST_KEEP).as_millis()).unwrap_or(i64::MAX);
        let once = sqlx::query_scalar(postgres::ONCE).bind(name).bind(keep);
        once.fetch_one(&mut **self).await
    }
}
