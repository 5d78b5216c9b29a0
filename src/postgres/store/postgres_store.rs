//! The store itself: each operation is one call over one connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::calls::{self, Attempted, Downgraded};
use super::connection::{Connection, silent};
use super::fault::{self, NoAnswer};
use super::options::PostgresOptions;
use super::owner::Owner;
use super::pool::{ConnectionPool, Purpose};
use super::preflight::Server;
use super::schema;
use super::target::{CREATES, Target};
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::span::in_millis;
use crate::store::dial::runtime;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, GrantProof, Hint, LockInfo, LockMode, Queue,
    Released, Renewed, Revoke, Revoked, Store,
};

/// How long the store waits for the message that it sent to itself.
const ECHO: Duration = Duration::from_secs(1);
/// The same, where a pooler is known to be between, and the message probably never arrives.
const POOLED_ECHO: Duration = Duration::from_millis(200);
/// How many holds are renewed in one statement.
const BATCH: usize = 5_000;
/// After so many releases of a client what is over is deleted, unless that was done within an hour.
const TIDY_EVERY: u64 = 1_000;
/// How many claims that got a message are remembered. One that is forgotten waits for its turn to
/// ask.
const MOST_CALLED: usize = 64;

/// Locks in a PostgreSQL database, version 13 or later (feature `postgres`).
///
/// The tables, the order of waiters, and what is assumed: see the [module](crate::postgres).
///
/// Must be called inside a tokio runtime with time and io enabled. Each calling runtime has a
/// connection, one more when it waits for a busy lock, and the manager's thread one for heartbeats.
/// Cloning is cheap; all clones are the same store.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    client: Arc<PostgresClient>,
}

#[derive(Debug)]
struct PostgresClient {
    pool: ConnectionPool,
    fencing: Fencing,
    knows_shares: bool,
    wakes: bool,
    releases: AtomicU64,
    /// The claims that got a message and have not asked since.
    called: Mutex<Vec<OwnerToken>>,
}

impl PostgresStore {
    /// Connects to the database that a URL names; see [`PostgresOptions`].
    ///
    /// # Errors
    ///
    /// As [`connect_with`](Self::connect_with), and `Invalid` for the URL.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(PostgresOptions::parse(url)?).await
    }

    /// Connects as the options say. Logs a warning if the server grants nothing yet, because it may
    /// lack the newest grants.
    ///
    /// # Errors
    ///
    /// - `Denied` for user, password or rights.
    /// - `Invalid` if the schema is missing or of an older version, or if other clients use another
    ///   `max_ttl`.
    /// - `Unsupported` if the server may forget locks in a crash (`fsync` or `full_page_writes`
    ///   off), or has a newer schema.
    /// - `Unavailable` if it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself. A
    /// schema is created as a whole or not at all.
    pub async fn connect_with(options: PostgresOptions) -> Result<Self, Error> {
        let target = Arc::new(Target::new(options)?);
        if target.options.creates {
            create(&target).await?;
        }
        let pool = ConnectionPool::new("postgresql", Arc::clone(&target));
        let connection = pool.connection(Purpose::Ask)?;
        let server = connection.server().await?;
        report(&server, &target);
        let fencing = fencing(&server);
        if fencing == Fencing::Monotonic {
            target.promise();
        }
        let wakes = echoes(&pool, &connection, &target).await?;
        if !wakes {
            tracing::warn!(
                target: "leasehold::postgres", address = %target.options.address,
                "postgresql's messages do not arrive, probably because of a pooler: busy locks are polled; add listen=HOST:PORT of the server itself to the URL"
            );
        }
        // Only space is lost if it fails.
        let _ = calls::tidy(&connection).await;
        Ok(Self {
            client: Arc::new(PostgresClient {
                fencing,
                knows_shares: server.knows_shares,
                pool,
                wakes,
                releases: AtomicU64::new(0),
                called: Mutex::default(),
            }),
        })
    }
}

impl PostgresStore {
    /// An error of the receiver says that no message can arrive any more: ask again.
    fn hint(&self, owner: OwnerToken, woken: oneshot::Receiver<()>) -> Hint {
        let client = Arc::clone(&self.client);
        Hint::new(async move {
            if woken.await.is_ok() {
                let mut called = client.called.lock();
                // Those that were dropped meanwhile never ask.
                if called.len() == MOST_CALLED {
                    called.clear();
                }
                called.push(owner);
            }
        })
    }
}

/// A standby that takes over may lack the newest grants, and the former primary may go on.
fn fencing(server: &Server) -> Fencing {
    if server.has_async_standbys {
        Fencing::None
    } else {
        Fencing::Monotonic
    }
}

/// For as long as how many requests the schema is created: clients that do so at once take turns.
const CREATE_REQUESTS: u32 = 10;

/// Creates the schema if it is missing.
async fn create(target: &Target) -> Result<(), Error> {
    let options = &target.options;
    // The script looks for sessions that may hold something: this one, and those beside it, have
    // nothing to hold yet.
    let mut config = options.config.clone();
    config.application_name(CREATES);
    let link = target.connect(config, |_| {}).await?;
    let asked = Server::ask(&link.client, None);
    let asked = target.clock.timeout(options.timeout, asked).await;
    match asked.ok_or_else(|| silent(target))? {
        Ok(_) => Ok(()),
        Err(error) if fault::is_without_schema(&error) => {
            let limit = options.timeout.saturating_mul(CREATE_REQUESTS);
            let created = schema::create(&link.client, options, limit);
            let created = target.clock.timeout(limit, created).await;
            created.unwrap_or_else(|| Err(silent(target)))
        }
        Err(error) => Err(fault::not_connected("hello", options, error)),
    }
}

fn report(server: &Server, target: &Target) {
    if !server.closed_for.is_zero() {
        tracing::warn!(
            target: "leasehold::postgres", address = %target.options.address,
            grants_in = ?in_millis(server.closed_for),
            "this postgresql is not the server of before, and may lack the newest grants: it grants nothing yet"
        );
    }
}

/// Whether a message that is sent over one connection arrives at another.
async fn echoes(
    pool: &ConnectionPool,
    connection: &Connection,
    target: &Target,
) -> Result<bool, Error> {
    let name = Owner(OwnerToken::generate()?).nickname();
    let echo = pool.subscriber()?.listen(name.clone()).await?;
    let notified = calls::notify(connection, &name).await;
    notified.map_err(|failure| failure.into_error("notify"))?;
    let is_likely = target.options.listen.is_some() || !connection.is_pooled();
    let limit = if is_likely { ECHO } else { POOLED_ECHO };
    let echo = target.clock.timeout(limit, echo).await;
    Ok(matches!(echo, Some(Ok(()))))
}

impl PostgresClient {
    fn connection(&self) -> Result<Arc<Connection>, Error> {
        self.pool.connection(Purpose::Ask)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<(usize, bool)>, Error> {
        let connection = self.pool.connection(Purpose::Heartbeat)?;
        let owners: Vec<_> = grants
            .iter()
            .map(|grant| Owner(grant.claim.owner))
            .collect();
        let extended = calls::renew(&connection, &owners).await;
        extended.map_err(|failure| failure.into_error("renew"))
    }

    /// Whether the claim got a message, once.
    fn take_call(&self, owner: OwnerToken) -> bool {
        let mut called = self.called.lock();
        let at = called.iter().position(|one| *one == owner);
        at.map(|at| called.swap_remove(at)).is_some()
    }

    /// Deletes what is over, now and then, in a task that nobody waits for.
    fn tidy(self: &Arc<Self>) {
        let count = self.releases.fetch_add(1, Ordering::Relaxed);
        if !(count + 1).is_multiple_of(TIDY_EVERY) {
            return;
        }
        let (Ok(runtime), Ok(connection)) = (runtime::handle("postgresql"), self.connection())
        else {
            return;
        };
        runtime.spawn(async move {
            // Only space is lost if it fails.
            let _ = calls::tidy(&connection).await;
        });
    }
}

impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: self.client.fencing,
            wakes: self.client.wakes,
            // A place that polls could not be served within the time of a handover.
            queue: if self.client.wakes {
                Queue::Handover
            } else {
                Queue::Places
            },
            shares: self.client.knows_shares,
            ..Capability::queued()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let connection = self.client.connection()?;
        let is_called = self.client.take_call(claim.owner);
        let answer = calls::ask(&connection, claim, self.client.wakes, is_called).await;
        if answer.as_ref().is_err_and(NoAnswer::is_untranslatable) {
            let server = connection.server().await?;
            return Err(fault::untranslatable(
                claim.label.as_str(),
                &server.encoding,
            ));
        }
        match answer.map_err(|failure| failure.into_error("acquire"))? {
            Attempted::Granted(token, ttl) => {
                let grant = Grant::new(claim.clone(), token, GrantProof::of(ttl));
                Ok(Acquired::Granted(grant))
            }
            Attempted::Busy(remaining) => Ok(Acquired::Busy { remaining }),
            Attempted::Withdrawn => Err(Error::invalid(format!(
                "this claim was withdrawn, or became a reader's: key={}; make a new claim",
                claim.key
            ))),
            Attempted::Closed(retry_after) => Ok(Acquired::NotReady { retry_after }),
        }
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut answers = Vec::with_capacity(grants.len());
        for batch in grants.chunks(BATCH) {
            let first = answers.len();
            match self.client.renew(batch).await {
                Ok(found) => {
                    answers.extend(batch.iter().map(|_| Renewed::Gone));
                    for (position, is_extended) in found {
                        let Some(grant) = batch.get(position) else {
                            continue;
                        };
                        answers[first + position] = if is_extended {
                            Renewed::Extended(GrantProof::in_millis(grant.claim.ttl))
                        } else {
                            Renewed::Unknown(fault::blocked("renew"))
                        };
                    }
                }
                Err(error) => {
                    answers.extend(batch.iter().map(|_| Renewed::Unknown(error.clone())));
                }
            }
        }
        answers
    }

    async fn release(&self, grant: &Grant) -> Released {
        let connection = match self.client.connection() {
            Ok(connection) => connection,
            Err(error) => return Released::Unknown(error),
        };
        self.client.tidy();
        released(calls::release(&connection, &grant.claim).await)
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        match self.client.connection() {
            Ok(connection) => released(calls::rest(&connection, &grant.claim, rest).await),
            Err(error) => Released::Unknown(error),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let connection = self.client.connection()?;
        let withdrawn = calls::withdraw(&connection, claim).await;
        withdrawn.map_err(|failure| failure.into_error("withdraw"))
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        if !self.client.wakes {
            return Ok(Hint::never());
        }
        let listener = self.client.pool.subscriber()?;
        let woken = listener.listen(Owner(claim.owner).nickname()).await?;
        let connection = self.client.connection()?;
        let watched = calls::watch(&connection, claim).await;
        watched.map_err(|failure| failure.into_error("subscribe"))?;
        Ok(self.hint(claim.owner, woken))
    }

    /// Whoever has a place gets a message without asking for it.
    fn listen(&self, claim: &Claim) -> Option<Hint> {
        if !self.client.wakes || claim.place_ttl.is_zero() {
            return None;
        }
        let listener = self.client.pool.present_subscriber()?;
        let woken = listener.listen_now(Owner(claim.owner).nickname())?;
        Some(self.hint(claim.owner, woken))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let key = &grant.claim.key;
        let connection = self.client.connection()?;
        let downgraded = calls::downgrade(&connection, &grant.claim).await;
        match downgraded.map_err(|failure| failure.into_error("downgrade"))? {
            Downgraded::Read(token, left) => {
                let mut claim = grant.claim.clone();
                claim.mode = LockMode::Read;
                Ok(Grant::new(claim, token, GrantProof::of(left)))
            }
            Downgraded::Exclusive => Err(Error::invalid(format!(
                "an exclusive hold cannot become a read hold: key={key}; take a write lock"
            ))),
            Downgraded::Gone => Err(Error::new(
                ErrorKind::Lost(Ended::Gone),
                format!("the claim does not hold the lock: key={key}; acquire it again"),
            )),
        }
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        let connection = self.client.connection()?;
        let taken = calls::take_away(&connection, key, how == Revoke::AfterTtl).await;
        let taken = taken.map_err(|failure| failure.into_error("revoke"))?;
        Ok(taken.map_or(Revoked::NotHeld, |free_in| Revoked::Revoked { free_in }))
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let connection = self.client.connection()?;
        let found = calls::look(&connection, key.as_str(), false).await;
        let mut found = found.map_err(|failure| only_read(failure.into_error("inspect")))?;
        Ok(found.pop())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let connection = self.client.connection()?;
        let found = calls::look(&connection, prefix, true).await;
        found.map_err(|failure| only_read(failure.into_error("list")))
    }

    async fn close(&self) -> Result<(), Error> {
        self.client.pool.close();
        Ok(())
    }
}

fn released(held: Result<bool, NoAnswer>) -> Released {
    match held {
        Ok(true) => Released::Released,
        Ok(false) => Released::AlreadyGone,
        Err(failure) => Released::Unknown(failure.into_error("release")),
    }
}

/// A question that was not answered changed nothing.
fn only_read(error: Error) -> Error {
    if error.kind() != ErrorKind::InDoubt {
        return error;
    }
    Error::unavailable("postgresql did not answer; ask again").because(error)
}
