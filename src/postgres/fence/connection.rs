//! [`FenceConnection`] and [`Pool`]: connections that are used by one caller at a time, and never
//! again after a call without an end.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Id;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Error as PgError, Row, SimpleQueryMessage};

use crate::clock::Clock;
use crate::model::error::Error;
use crate::postgres::PostgresOptions;
use crate::postgres::store::{Link, not_connected};
use crate::store::dial::{Redial, runtime};

/// Connections that are kept for the next caller, for each runtime.
const IDLE: usize = 8;
/// A statement outside of a transaction fails if it writes.
const GUARD: &str = "-c default_transaction_read_only=on";
/// The lease of a short run. It bounds the time between two attempts to connect: a run has its
/// lease to learn what became of a commit.
const LEASE: Duration = Duration::from_secs(5);
/// What the server calls its connections, unless the URL says otherwise.
const NAME: &str = "leasehold fence";
/// How long a connect to one server may take, unless the URL says otherwise (`connect_timeout`).
const CONNECT: Duration = Duration::from_secs(5);

/// A connection. When it is dropped its socket is closed at once, and the server rolls back what is
/// open.
pub(super) struct FenceConnection {
    pub(super) link: Link,
    runtime: Id,
    /// Nothing can be written over it outside of a transaction that begins as `READ WRITE`.
    pub(super) is_guarded: bool,
    /// It was kept for a while, and may have died unnoticed.
    pub(super) was_idle: bool,
}

/// What was answered to statements that were sent together.
#[derive(Default)]
pub(super) struct Answered {
    /// To how many of them.
    pub(super) answers: usize,
    /// The last column of the first row, if it is a number.
    pub(super) number: Option<f64>,
    has_row: bool,
}

/// The name of the column that says since when the server [waits](waits) for its standbys.
pub(super) const WAITS: &str = "waits";

impl FenceConnection {
    /// Whether nobody else can send anything over it: no transaction that was lent to a work is
    /// left.
    pub(super) fn is_ours_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.link.client).is_some()
    }

    /// One statement that answers one row: one round trip, also behind a pooler.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, PgError> {
        self.link
            .client
            .query_typed_one(statement, parameters)
            .await
    }

    /// Statements without parameters and answers, sent together: one round trip. After one that
    /// fails none is executed.
    pub(super) async fn run(&self, statements: &str) -> Result<(), PgError> {
        self.link.client.batch_execute(statements).await
    }

    /// As [`run`](Self::run). `seen` is what was answered, whatever becomes of the statements
    /// behind.
    pub(super) async fn run_and_see(
        &self,
        statements: &str,
        seen: &mut Answered,
    ) -> Result<(), PgError> {
        let mut answers = pin!(self.link.client.simple_query_raw(statements).await?);
        while let Some(answer) = answers.next().await {
            match answer? {
                SimpleQueryMessage::CommandComplete(_) => seen.answers += 1,
                SimpleQueryMessage::Row(row) if !seen.has_row => {
                    let last = row.try_get(row.len().saturating_sub(1))?;
                    seen.number = last.and_then(|last| last.parse().ok());
                    seen.has_row = true;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Which server, and how it is connected to.
#[derive(Clone)]
pub(super) struct Server {
    options: PostgresOptions,
    config: Config,
    /// The same for guarded connections. `None`: there are none.
    guarded: Option<Config>,
    /// How long a connect may take, with the handshake: the driver limits each address by itself,
    /// and no handshake.
    limit: Duration,
}

impl Server {
    /// As the store reads it: one URL names both.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        PostgresOptions::parse(url).map(Self::with)
    }

    /// The same from the options of a store.
    pub(super) fn with(options: PostgresOptions) -> Self {
        let mut config = options.config.clone();
        if config.get_application_name().is_none() {
            config.application_name(NAME);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        // A fence writes: of several servers it needs the primary. It is known by this, so a
        // guarded connection would not find it.
        let is_one = config.get_hosts().len() == 1 && !options.seeks_primary;
        if is_one {
            config.target_session_attrs(TargetSessionAttrs::Any);
        }
        let mut guarded = config.clone();
        let given = config.get_options().unwrap_or_default();
        guarded.options(format!("{given} {GUARD}"));
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        let limit = *config.get_connect_timeout().unwrap_or(&CONNECT);
        Self {
            guarded: is_one.then_some(guarded),
            limit: limit.saturating_mul(hosts.max(1)),
            config,
            options,
        }
    }
}

/// The connections of a fence. A connection is driven by the runtime that made it, and is used by
/// that runtime only.
pub(super) struct Pool {
    server: Server,
    clock: Clock,
    idle: Mutex<Vec<FenceConnection>>,
    redial: Mutex<Redial>,
}

impl Pool {
    pub(super) fn new(server: Server, clock: Clock) -> Self {
        Self {
            server,
            clock,
            idle: Mutex::default(),
            redial: Mutex::new(Redial::new(LEASE)),
        }
    }

    /// A connection in which nothing is open. `is_guarded`: a guarded one, if there can be one.
    pub(super) async fn take(&self, is_guarded: bool) -> Result<FenceConnection, Error> {
        let is_guarded = is_guarded && self.server.guarded.is_some();
        let runtime = runtime::id("postgresql")?;
        let idle = {
            let mut idle = self.idle.lock();
            idle.retain(|connection| !connection.link.client.is_closed());
            let is_meant =
                |idle: &FenceConnection| idle.runtime == runtime && idle.is_guarded == is_guarded;
            let ours = idle.iter().position(is_meant);
            ours.map(|at| idle.swap_remove(at))
        };
        match (idle, &self.server.guarded) {
            (Some(connection), _) => Ok(connection),
            (None, Some(config)) if is_guarded => match self.dial_guarded(config).await {
                Some(connection) => Ok(connection),
                None => self.dial().await,
            },
            (None, _) => self.dial().await,
        }
    }

    /// `None`: no connection, or one over which the option did not arrive. A pooler may refuse it,
    /// or drop it. While the server refuses all, [`dial`](Self::dial) alone tries.
    async fn dial_guarded(&self, config: &Config) -> Option<FenceConnection> {
        if !self.pause().is_zero() {
            return None;
        }
        let mut connection = Box::pin(self.dial_with(config)).await.ok()?;
        let asked = connection.ask("SHOW default_transaction_read_only", &[]);
        let row = self.clock.timeout(self.server.limit, asked).await?.ok()?;
        connection.is_guarded = row.try_get::<_, &str>(0).ok()? == "on";
        connection.is_guarded.then_some(connection)
    }

    /// A connection that was not kept, and is not guarded. The next attempt after one that failed
    /// waits.
    pub(super) async fn dial(&self) -> Result<FenceConnection, Error> {
        let pause = self.pause();
        if !pause.is_zero() {
            self.clock.sleep(pause).await;
        }
        let dialled = Box::pin(self.dial_with(&self.server.config)).await;
        if dialled.is_ok() {
            self.redial.lock().reset();
        } else if self.pause().is_zero() {
            // Those that fail together count as one.
            self.redial.lock().begin(self.clock.stamp());
        }
        dialled
    }

    /// How long the next attempt waits.
    fn pause(&self) -> Duration {
        self.redial.lock().delay(&self.clock.stamp())
    }

    /// To be boxed: it is large, and most runs have a connection.
    async fn dial_with(&self, config: &Config) -> Result<FenceConnection, Error> {
        let (options, runtime) = (&self.server.options, runtime::id("postgresql")?);
        let limit = (&self.clock, options.timeout);
        let ready = &options.dialer.ready(limit).await?;
        let dial = |config: Config| async move {
            let dialled = self.in_time(ready.dial(&config)).await?;
            dialled.map_err(|error| not_connected("connect", options, error))
        };
        let dialled = options.dialer.connect(config, limit, dial).await?;
        let link = Link::drive(dialled, false, |_| {});
        let trusted = self.in_time(link.trust_owners(false)).await?;
        trusted.map_err(|error| not_connected("owner", options, error))?;
        Ok(FenceConnection {
            link,
            runtime,
            is_guarded: false,
            was_idle: false,
        })
    }

    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Result<T, Error> {
        let limit = self.server.limit;
        let done = self.clock.timeout(limit, step).await;
        done.ok_or_else(|| {
            Error::unavailable(format!(
                "postgresql took the connection and did not answer: timeout={limit:?}; check that the server runs, and that it is one"
            ))
        })
    }

    /// Keeps a connection in which nothing is open and every answer has come.
    pub(super) fn put_back(&self, mut connection: FenceConnection) {
        connection.was_idle = true;
        if connection.link.client.is_closed() || connection.link.is_unreplicated() {
            return;
        }
        let mut idle = self.idle.lock();
        let ours = idle
            .iter()
            .filter(|idle| idle.runtime == connection.runtime);
        if ours.count() < IDLE {
            idle.push(connection);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("hosts", &self.server.config.get_hosts())
            .field("ports", &self.server.config.get_ports())
            .field("idle", &self.idle.lock().len())
            .finish_non_exhaustive()
    }
}
