//! The fence in a MariaDB or MySQL database.
//!
//! An error aborts nothing there, so a connection on which one was answered goes back to the pool
//! only after its `ROLLBACK`, or is closed.

mod commit;
mod fault;
mod home;
mod hung;
mod schema;
mod sweep;
mod text;

use std::time::Duration;

use leasehold::fence::sql::mysql;
use leasehold::fence::{partly_applied, too_old};
use leasehold::run::{Doubt, Resolution};
use leasehold::{Error, ErrorKind, FencingToken, Key};
use sqlx::mysql::MySqlRow;
use sqlx::{MySql, MySqlConnection, MySqlPool, Row, Transaction};

use crate::database::{At, Dialect, Run, Stop};
use crate::lent::Lent;
use crate::once::{Once, whole_seconds};
use commit::Until;
use text::{UNWAIT, Value, WAIT, ask, filled, number};

/// The pause before a call is repeated that a deadlock ended without an effect.
const PAUSE: Duration = Duration::from_millis(20);

impl Dialect for MySql {
    type Entered = Until;

    const BEGIN: &'static str = mysql::BEGIN;

    async fn enter(transaction: &mut Transaction<'_, Self>, run: &Run<'_>) -> Result<Until, Stop> {
        commit::enter(transaction, run).await
    }

    async fn witness(transaction: &mut Transaction<'_, Self>, run: &Run<'_>) -> Result<(), Stop> {
        commit::witness(transaction, run).await
    }

    async fn commit(
        transaction: Transaction<'_, Self>,
        until: Until,
        run: &Run<'_>,
    ) -> Result<(), Stop> {
        commit::commit(transaction, until, run).await
    }

    async fn clean(connection: &mut MySqlConnection) -> sqlx::Result<()> {
        let clean = format!("{}; {}", mysql::END, mysql::UNLIMIT);
        ask(connection, &clean).await.rows().map(drop)
    }

    async fn raise(
        at: At<'_, Self>,
        key: &Key,
        token: FencingToken,
    ) -> Result<FencingToken, Error> {
        let request = raise_text(key, token);
        let raised = at.alone("raise the fence", key, number(token), &request, |rows| {
            Ok((Raised::of(rows)?, COMMIT))
        });
        raised.await?.token()
    }

    fn forget(key: &Key) -> String {
        format!(
            "DELETE FROM leasehold_fence WHERE lock_key = '{key}'; DELETE FROM leasehold_swept WHERE lock_key = '{key}'; DELETE FROM leasehold_txn WHERE lock_key = '{key}'"
        )
    }

    async fn resolve(at: At<'_, Self>, doubt: &Doubt) -> Result<Resolution, Error> {
        let name = doubt.txn_id.to_string();
        let Some(first) = doubt.locks.first() else {
            return Err(Error::invalid(
                "a doubt without a lock; name every lock of the run",
            ));
        };
        let token = number(first.token);
        let (txn_id, key) = (Value::Text(&name), Value::Text(first.key.as_str()));
        let void = filled(mysql::VOID, &[txn_id, key, Value::Number(token)]);
        let resolve = filled(mysql::RESOLVE, &[key, txn_id, key]);
        let request = format!("{void}; {resolve}; {}", mysql::IS_DURABLE);
        // Its own transaction may be the one that hangs.
        let below = token + 1;
        let answer = at.alone("resolve a commit", &first.key, below, &request, |rows| {
            let answer = Answer::of(rows)?;
            let end = if answer.is_known(&name) {
                COMMIT
            } else {
                ROLLBACK
            };
            Ok((answer, end))
        });
        let answer = answer.await?;
        match answer.state {
            _ if !answer.is_durable => Err(fault::not_durable()),
            _ if !answer.is_known(&name) => Err(too_old(doubt)),
            0 => Ok(Resolution::NotApplied),
            1 => Ok(Resolution::Applied),
            _ => Err(partly_applied(doubt)),
        }
    }

    async fn sweep(pool: MySqlPool) {
        sweep::sweep(pool).await;
    }

    async fn trust(pool: &MySqlPool, connection: &mut MySqlConnection) -> sqlx::Result<bool> {
        home::is_home(pool, connection).await
    }
}

/// What the resolver reads.
struct Answer {
    state: i64,
    asked: i64,
    swept: Option<String>,
    is_durable: bool,
}

impl Answer {
    fn of(rows: &[MySqlRow]) -> sqlx::Result<Self> {
        let [row, durable] = rows else {
            return Err(sqlx::Error::RowNotFound);
        };
        Ok(Self {
            state: row.try_get("state")?,
            asked: row.try_get("asked")?,
            swept: row.try_get_unchecked("swept")?,
            is_durable: durable.try_get::<i64, _>(0)? == 1,
        })
    }

    /// A name that this question claimed as void may be one that was deleted.
    fn is_known(&self, name: &str) -> bool {
        let is_new = self.state == 0 && self.asked == 1;
        !(is_new && self.swept.as_deref().is_some_and(|swept| swept >= name))
    }
}

const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// Raises the fence, in a transaction of its own.
fn raise_text(key: &Key, token: FencingToken) -> String {
    let (key, token) = (Value::Text(key.as_str()), Value::Number(number(token)));
    let raise = filled(mysql::RAISE, &[key, token, token]);
    let seen = filled(mysql::SEEN, &[key]);
    format!("{raise}; {seen}; {}", mysql::IS_DURABLE)
}

/// What [`raise_text`] answers.
struct Raised {
    seen: i64,
    is_durable: bool,
}

impl Raised {
    fn of(rows: &[MySqlRow]) -> sqlx::Result<Self> {
        let [seen, durable] = rows else {
            return Err(sqlx::Error::RowNotFound);
        };
        Ok(Self {
            seen: seen.try_get(0)?,
            is_durable: durable.try_get::<i64, _>(0)? == 1,
        })
    }

    /// The token that the fence has then.
    fn token(&self) -> Result<FencingToken, Error> {
        if !self.is_durable {
            return Err(fault::not_durable());
        }
        FencingToken::new(u64::try_from(self.seen).unwrap_or(u64::MAX))
    }
}

impl At<'_, MySql> {
    /// A transaction of the fence's own. Where it waits for one under a token below `below` whose
    /// lease is over, the connection of that is ended.
    async fn alone<T>(
        &self,
        what: &str,
        key: &Key,
        below: i64,
        request: &str,
        read: impl Fn(&[MySqlRow]) -> sqlx::Result<(T, &'static str)> + Send + Sync,
    ) -> Result<T, Error> {
        let end = self.clock.stamp().plus(self.wait);
        let request = format!("{WAIT}; START TRANSACTION; {request}");
        loop {
            let done = async {
                let mut connection = Lent::by(self.pool).await?;
                let rows = ask(&mut connection, &request).await.rows()?;
                let (answer, end) = read(&rows)?;
                let ended = ask(&mut connection, &format!("{end}; {UNWAIT}")).await;
                ended.rows()?;
                connection.give_back();
                Ok(answer)
            };
            let left = end.since(&self.clock.stamp());
            match self.clock.timeout(left, done).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) if fault::is_waiting(&error) => {
                    let left = end.since(&self.clock.stamp());
                    let ended = hung::end(self.pool, key, below);
                    let _ = self.clock.timeout(left, ended).await;
                }
                Some(Err(error)) if fault::is_transient(&error) => self.clock.sleep(PAUSE).await,
                Some(Err(error)) => return Err(fault::into_error(what, error)),
                None => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        format!(
                            "the database did not answer in time, or a transaction under another token was not over: call={what}; try again"
                        ),
                    ));
                }
            }
        }
    }
}

/// In bytes. Without a strict `sql_mode` the server cuts a longer one, and takes it for another.
const LONGEST_NAME: usize = 1000;

impl Once for Transaction<'_, MySql> {
    async fn once(&mut self, name: &str, keep: Duration) -> sqlx::Result<bool> {
        if name.len() > LONGEST_NAME {
            let text = format!(
                "the name is too long: bytes={}; use at most {LONGEST_NAME}",
                name.len()
            );
            return Err(sqlx::Error::Encode(text.into()));
        }
        let claim = sqlx::query(mysql::ONCE).bind(name);
        claim.execute(&mut **self).await?;
        let until = sqlx::query(mysql::ONCE_UNTIL).bind(whole_seconds(keep));
        let until = until.bind(name);
        Ok(until.execute(&mut **self).await?.rows_affected() == 1)
    }
}
