//! [`PgFence`]: transactions in PostgreSQL that commit only while their token is the newest.

mod commit;
mod connection;
mod fault;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
pub use transaction::{PgDone, PgStop, PgTransaction};

use crate::clock::Clock;
use crate::fence::sql::postgres;
use crate::fence::{Fence, Resolve, newer_holder};
use crate::model::commit::{Applied, CommitPermit, EffectError};
use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::{BoxError, Error};
use crate::model::fence_call::FenceCall;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::postgres::PostgresOptions;
use crate::postgres::store::waits;
use commit::columns;
use connection::{FenceConnection, Pool, Server, WAITS};

/// How often a call is repeated after a serialization failure or a deadlock, which ended it without
/// an effect.
const TRIES: u32 = 5;

/// Transactions in PostgreSQL that commit only while their token is the newest of its key (feature
/// `postgres`).
///
/// Its first statement locks the fence's row to the end of the transaction, and a newer holder
/// waits for that before it gets its guard. So no transaction of a former holder is open, and none
/// can begin, when the new one reads for the first time. And the server refuses a `COMMIT` that it
/// executes after the lease, though nobody has raised the fence: [the end of the lease, in the
/// database](crate::docs::sql#the-end-of-the-lease-in-the-database).
///
/// ```no_run
/// # async fn example(locks: leasehold::LockManager) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::postgres::PgFence;
///
/// let fence = PgFence::connect("postgres://app@127.0.0.1/bank").await?;
/// let lock = locks.lock("accounts/7").fence(fence.clone());
/// let done = lock.commit(fence.transaction(async move |t| {
///     let take = "UPDATE accounts SET cents = cents - $1
///         WHERE id = 7 RETURNING cents";
///     let left: i64 = t.query_one(take, &[&10_i64]).await?.get(0);
///     if left < 0 {
///         // Rolled back; the run reports this error as it is.
///         return t.refuse("not enough money");
///     }
///     // Committed; the run reports this value.
///     t.done(left)
/// }));
/// println!("{} cents are left", done.await?.value);
/// # Ok(())
/// # }
/// ```
///
/// The data need not be where the locks are: any store whose tokens grow grants them. The schema of
/// the fence must be in the database of the data: see [`create_schema`](Self::create_schema).
///
/// A commit that is not answered is resolved within the run if there is time, and later by
/// [`Resolve`].
///
/// # What is not promised
///
/// What is changed without the fence is not protected. With asynchronous standbys a fail-over may
/// lose the last transactions, the fence's rows among them. Without `sslmode` connections are not
/// encrypted.
///
/// Must be called inside a tokio runtime with time and io enabled. Cloning is cheap.
#[derive(Clone)]
pub struct PgFence {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    pool: Arc<Pool>,
    clock: Clock,
    /// How long a raise waits for the transactions of former holders.
    wait: Duration,
    is_pipelined: bool,
    commits: Arc<AtomicU32>,
}

/// After how many commits a fence asks the server to delete old names. The server does that hourly,
/// whoever asks.
const SWEEP_EVERY: u32 = 64;

/// How long a raise waits for the transactions of former holders, unless [`wait`](PgFence::wait)
/// says otherwise.
const WAIT: Duration = Duration::from_secs(5);

impl PgFence {
    /// Connects to the database of a URL, as libpq reads it:
    /// `postgres://user:password@host:5432/database`, and several hosts, of which the first that is
    /// a primary is used. The options mean what they mean
    /// [for the store](crate::docs::stores::postgres#options).
    ///
    /// Where the locks are in the same database, the URL of
    /// [`PostgresStore`](crate::postgres::PostgresStore) does too: `create`, `listen` and `max_ttl`
    /// are about locks, and change nothing here. `timeout_millis` limits how long credentials and
    /// certificates are read.
    ///
    /// # Errors
    ///
    /// `Invalid` if the URL is malformed, `Denied` if the server refuses the role, `Unavailable` if
    /// it cannot be reached, `Unsupported` for TLS without the feature `tls`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves nothing but an attempt to connect that ends by itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::over(Server::parse(url)?).await
    }

    /// Connects to the database of the options, for a [provider of
    /// credentials](PostgresOptions::credentials_from). What they say about locks changes nothing
    /// here.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_with(options: PostgresOptions) -> Result<Self, Error> {
        Self::over(Server::with(options)).await
    }

    async fn over(server: Server) -> Result<Self, Error> {
        let clock = Clock::system()?;
        let shared = Shared {
            pool: Arc::new(Pool::new(server, clock.clone())),
            clock,
            wait: WAIT,
            is_pipelined: false,
            commits: Arc::default(),
        };
        let connection = shared.pool.take(false).await?;
        shared.sweep(connection).await;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Sets how long [`raise`](Fence::raise) and [`resolve`](Resolve::resolve) wait for a
    /// transaction that is open; 5 s by default. The server ends a transaction whose client hangs a
    /// second after its lease.
    ///
    /// A lock gives its first raise [`request_timeout`](crate::Settings::request_timeout), and each
    /// further one [twice as long](crate::Lock::fence): so this limits the later ones.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.changed(|shared| shared.wait = wait)
    }

    /// Starts the work of a transaction before the server has answered that the fence was entered:
    /// the work's first statement goes with the fence's, which saves a round trip for each
    /// transaction.
    ///
    /// The server executes a statement of the work only in a transaction that has entered, and
    /// where an operator or a time-out cancels `BEGIN` itself, it refuses to write: the connection
    /// is read-only outside of such transactions. Where that cannot be had (several hosts in the
    /// URL, a pooler that drops options), nothing is sent before the fence was entered.
    ///
    /// But the work has begun then: a former holder's work runs up to the answer to its first
    /// statement, which is an error. So use this for work that has no effect but statements of its
    /// transaction. And work that has begun is not begun again: a connection that died while it was
    /// idle rolls the run back, where otherwise a new one replaces it.
    #[must_use]
    pub fn pipelined(self) -> Self {
        self.changed(|shared| shared.is_pipelined = true)
    }

    fn changed(self, change: impl FnOnce(&mut Shared)) -> Self {
        let mut shared = Shared::clone(&self.shared);
        change(&mut shared);
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Creates the tables and functions of the fence
    /// ([`sql::postgres::SCHEMA`](crate::fence::sql::postgres::SCHEMA)), unless they exist. Needs
    /// the right to create a schema; everybody else needs USAGE on the schema `leasehold`.
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
        let shared = &self.shared;
        let created = async {
            let connection = shared.pool.take(false).await?;
            // Two that create it at once would meet in the catalog, and the second has to see what
            // the first did.
            let text = format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {}; \
                 SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('leasehold')); {} COMMIT;",
                milliseconds(shared.wait),
                postgres::SCHEMA
            );
            let created = connection.link.client.batch_execute(&text).await;
            created.map_err(fault::not_created)?;
            shared.pool.put_back(connection);
            Ok(())
        };
        let limit = shared.wait.saturating_add(Duration::from_secs(1));
        let created = shared.clock.timeout(limit, created).await;
        created.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "postgresql did not answer in time: call=\"create the schema\" timeout={limit:?}; check that the server runs, and try again"
            )))
        })
    }

    /// The commit of a guarded run: a transaction that enters the fence of every lock of the run,
    /// does `work`, and commits. Give it to [`Lock::commit`](crate::Lock::commit) or to
    /// [`commit_with`](crate::Tx::commit_with).
    ///
    /// The work ends with [`PgTransaction::done`] or [`PgTransaction::refuse`]; `?` on an error of
    /// a statement rolls back. An error that you refuse with is boxed:
    /// [`transaction_as`](Self::transaction_as) keeps its type.
    pub fn transaction<V, F, Fut>(
        &self,
        work: F,
    ) -> impl FnOnce(CommitPermit) -> PgCommit<V, BoxError> + Send + 'static + use<V, F, Fut>
    where
        V: Send + 'static,
        F: FnOnce(PgTransaction) -> Fut + Send + 'static,
        Fut: Future<Output = Result<PgDone<V>, PgStop<BoxError>>> + Send + 'static,
    {
        self.transaction_as(work)
    }

    /// [`transaction`](Self::transaction) for work that refuses with an error type of its own.
    pub fn transaction_as<R, V, F, Fut>(
        &self,
        work: F,
    ) -> impl FnOnce(CommitPermit) -> PgCommit<V, R> + Send + 'static + use<R, V, F, Fut>
    where
        R: Send + 'static,
        V: Send + 'static,
        F: FnOnce(PgTransaction) -> Fut + Send + 'static,
        Fut: Future<Output = Result<PgDone<V>, PgStop<R>>> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        move |permit| {
            let committed = async move {
                let committed = commit::commit(&shared, &permit, work);
                permit.used_to_send(committed).await
            };
            FenceCall::new(committed)
        }
    }
}

/// What a [transaction](PgFence::transaction) is to a run: its commit call.
pub type PgCommit<V, R> = FenceCall<Result<Result<Applied<V>, R>, EffectError>>;

impl Shared {
    /// Deletes old names. Without a schema there are none.
    async fn sweep(&self, connection: FenceConnection) {
        // A serializable sweep would fail the runs beside it.
        let text = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; {}; COMMIT",
            postgres::SWEEP
        );
        let limit = self.wait.saturating_add(Duration::from_secs(1));
        let swept = connection.link.client.batch_execute(&text);
        match self.clock.timeout(limit, swept).await {
            Some(Ok(())) => self.pool.put_back(connection),
            Some(Err(error)) => {
                tracing::debug!(target: "leasehold::postgres", sqlstate = ?fault::code(&error), "old names were not swept")
            }
            None => {}
        }
    }

    /// Keeps the connection of a commit. Now and then it deletes old names first, while the run
    /// goes on.
    fn committed(&self, connection: FenceConnection) {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        if commits % SWEEP_EVERY < SWEEP_EVERY - 1 {
            return self.pool.put_back(connection);
        }
        let shared = self.clone();
        tokio::spawn(async move { shared.sweep(connection).await });
    }

    /// One statement, for at most as long as the fence waits and a second more; `None` if no answer
    /// came.
    async fn ask(
        &self,
        connection: &FenceConnection,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Option<Result<Row, tokio_postgres::Error>> {
        let limit = self.wait.saturating_add(Duration::from_secs(1));
        let asked = connection.ask(statement, parameters);
        self.clock.timeout(limit, asked).await
    }

    /// A statement that changes nothing if it fails and no more if it is repeated, on a connection
    /// of its own.
    async fn ask_anew(
        &self,
        what: &str,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let statement = format!("{statement}, {} AS {WAITS}", waits!());
        let mut tries = 0;
        let mut was_lost = false;
        loop {
            tries += 1;
            let connection = if was_lost {
                self.pool.dial().await?
            } else {
                self.pool.take(false).await?
            };
            match self.ask(&connection, &statement, parameters).await {
                Some(Ok(row)) if !self.is_replicated(&connection, &row).await => {
                    return Err(Error::unavailable(format!(
                        "the standbys did not confirm it: call={what}; try again"
                    )));
                }
                Some(Ok(row)) => {
                    self.pool.put_back(connection);
                    return Ok(row);
                }
                // A kept connection that died unnoticed. The call may be repeated.
                Some(Err(error)) if connection.was_idle && fault::is_lost(&error) => {
                    was_lost = true;
                }
                Some(Err(error)) => {
                    let code = fault::code(&error);
                    let is_transient = matches!(code, Some("40001" | "40P01"));
                    if code.is_some() {
                        self.pool.put_back(connection);
                    }
                    if !is_transient || tries == TRIES {
                        return Err(fault::into_error(what, error));
                    }
                }
                None => {
                    return Err(Error::unavailable(format!(
                        "postgresql did not answer in time: call={what}; try again"
                    )));
                }
            }
        }
    }

    /// Whether the standbys have it that the server waits for.
    async fn is_replicated(&self, connection: &FenceConnection, row: &Row) -> bool {
        let link = &connection.link;
        match row.try_get::<_, Option<f64>>(WAITS) {
            _ if link.is_unreplicated() => false,
            Ok(None) => true,
            Ok(Some(since)) => {
                let limit = self.wait.saturating_add(Duration::from_secs(1));
                self.clock.timeout(limit, link.has_waited(since)).await == Some(true)
            }
            Err(_) => false,
        }
    }

    /// Raises the fence of a key; the token that it has then.
    async fn raised(&self, key: &Key, token: FencingToken) -> Result<FencingToken, Error> {
        let (key, token, wait) = (key.as_str(), number(token), milliseconds(self.wait));
        let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
            (&key, Type::TEXT),
            (&token, Type::INT8),
            (&wait, Type::INT4),
        ];
        let row = self
            .ask_anew("raise the fence", postgres::RAISE, &parameters)
            .await?;
        read(&row, |row| row.try_get::<_, i64>(0).ok())
            .and_then(|seen| FencingToken::new(u64::try_from(seen).unwrap_or(u64::MAX)))
    }

    async fn resolved(&self, doubt: &Doubt, wait: Duration) -> Result<Resolution, Error> {
        doubt.check()?;
        let (keys, tokens) = columns(&doubt.locks);
        let (name, wait) = (doubt.txn_id.to_string(), milliseconds(wait.min(self.wait)));
        let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
            (&keys, Type::TEXT_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&name, Type::TEXT),
            (&wait, Type::INT4),
        ];
        let row = self
            .ask_anew("resolve a commit", postgres::RESOLVE, &parameters)
            .await?;
        let is_applied = read(&row, |row| row.try_get::<_, bool>(0).ok())?;
        Ok(if is_applied {
            Resolution::Applied
        } else {
            Resolution::NotApplied
        })
    }
}

fn read<T>(row: &Row, column: impl Fn(&Row) -> Option<T>) -> Result<T, Error> {
    column(row).ok_or_else(|| {
        Error::corrupt("a function of the schema leasehold answered what it never does; compare the schema with fence::sql::postgres::SCHEMA")
    })
}

/// A token is below 2^53.
fn number(token: FencingToken) -> i64 {
    i64::try_from(token.number()).unwrap_or(i64::MAX)
}

/// At least one: for the server zero means for ever.
fn milliseconds(span: Duration) -> i32 {
    i32::try_from(span.as_millis()).unwrap_or(i32::MAX).max(1)
}

impl Fence for PgFence {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        let seen = self.shared.raised(key, token).await?;
        if seen > token {
            // No letter of a key ends a string.
            return Err(newer_holder(key, token, seen, || {
                format!(
                    "DELETE FROM leasehold.fence WHERE key = '{key}'; DELETE FROM leasehold.swept WHERE key = '{key}'; DELETE FROM leasehold.txn WHERE '{key}' = ANY (keys)"
                )
            }));
        }
        Ok(())
    }
}

impl Resolve for PgFence {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        self.shared.resolved(doubt, self.shared.wait).await
    }
}

impl fmt::Debug for PgFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgFence")
            .field("pool", &self.shared.pool)
            .finish_non_exhaustive()
    }
}
