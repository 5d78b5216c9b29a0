//! [`Target`]: what a connection connects to, and by which clock it waits.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error as PgError};

use super::dialer::{Driver, Ready};
use super::fault;
use super::link::Link;
use super::options::PostgresOptions;
use super::preflight::Server;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::dial::Connecting;

/// The functions need it, and refuse any other. The server takes the last of several.
const ISOLATION: &str = "-c default_transaction_isolation=read\\ committed";

/// What the server calls a connection that creates the schema.
pub(super) const CREATES: &str = "leasehold create";

/// What all connections of a store have in common.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) options: PostgresOptions,
    pub(super) clock: Clock,
    /// The [life](Server::life) that was seen last, over any connection.
    seen: Mutex<Option<String>>,
    /// Whether the store promised that its tokens grow.
    promises: AtomicBool,
}

impl Target {
    pub(super) fn new(options: PostgresOptions) -> Result<Self, Error> {
        Ok(Self {
            clock: Clock::system()?,
            seen: Mutex::default(),
            promises: AtomicBool::new(false),
            options,
        })
    }

    /// The life that was seen last.
    pub(super) fn seen(&self) -> Option<String> {
        self.seen.lock().clone()
    }

    pub(super) fn saw(&self, life: &str) {
        *self.seen.lock() = Some(life.to_owned());
    }

    /// The store promises for its life that its tokens grow, by what it saw at its first
    /// connection.
    pub(super) fn promise(&self) {
        self.promises.store(true, Ordering::Relaxed);
    }

    /// Warns of a server to which standbys were attached since.
    pub(super) fn compare(&self, server: &Server) {
        if server.has_async_standbys && self.promises.load(Ordering::Relaxed) {
            tracing::warn!(
                target: "leasehold::postgres", address = %self.options.address,
                "this postgresql has asynchronous standbys now: after a fail-over tokens may not grow, and fences of this process count on it; set synchronous_standby_names, or connect again"
            );
        }
    }

    /// For one connection of one runtime.
    pub(super) fn connecting(&self) -> Connecting {
        Connecting::new("postgresql", self.clock.clone(), self.options.max_ttl)
    }

    /// Connects to the server. `notified` receives the payload of each of its messages.
    pub(super) async fn connect(
        &self,
        config: Config,
        notified: impl FnMut(&str) + Send + 'static,
    ) -> Result<Link, Error> {
        let dialer = &self.options.dialer;
        let limit = (&self.clock, self.options.timeout);
        let ready = &dialer.ready(limit).await?;
        let dial = |config: Config| async move { self.in_time(self.dial(ready, &config)).await };
        let (dialled, is_pooled) = dialer.connect(&config, limit, dial).await?;
        let link = Link::drive(dialled, is_pooled, notified);
        let trusting = async {
            let trusted = link.trust_owners(self.options.creates).await;
            trusted.map_err(|error| fault::not_connected("owner", &self.options, error))
        };
        self.in_time(trusting).await?;
        Ok(link)
    }

    /// A step of a connect, for at most as long as any request.
    async fn in_time<T>(&self, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.options.timeout;
        let done = self.clock.timeout(limit, step).await;
        done.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "postgresql did not answer in time: address={} timeout={limit:?}; check host and port, and that a PostgreSQL listens there",
                self.options.address
            )))
        })
    }

    /// The connection, and whether a pooler is between.
    async fn dial(
        &self,
        ready: &Ready,
        config: &Config,
    ) -> Result<((Client, Driver), bool), Error> {
        let mut plain = config.clone();
        // By this name the schema knows whether clients are connected while it is made. The one
        // that makes it is not counted.
        if plain.get_application_name() != Some(CREATES) {
            plain.application_name("leasehold");
        }
        let mut config = plain.clone();
        let options = config.get_options().unwrap_or_default();
        config.options(format!("{options} {ISOLATION}"));
        let (dialled, is_pooled) = match ready.dial(&config).await {
            Err(error) if is_of_a_pooler(&error) => (ready.dial(&plain).await, true),
            dialled => (dialled, false),
        };
        let dialled =
            dialled.map_err(|error| fault::not_connected("connect", &self.options, error))?;
        Ok((dialled, is_pooled))
    }
}

/// PgBouncer refuses options at the connect, unless it is configured to ignore them.
fn is_of_a_pooler(error: &PgError) -> bool {
    let answer = error.as_db_error();
    answer.is_some_and(|answer| {
        *answer.code() == SqlState::PROTOCOL_VIOLATION && answer.message().contains("options")
    })
}
