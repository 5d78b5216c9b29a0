//! [`Target`]: what a connection connects to, and by which clock it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Error as PgError};

use super::dialer::{self, Dialer, Driver};
use super::fault;
use super::options::PostgresOptions;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::dial::{Connecting, Health, MarksDead};

/// What all connections of a store have in common.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) options: PostgresOptions,
    pub(super) clock: Clock,
    dialer: Dialer,
}

/// A connection to the server. Its socket is closed when the last of its users drops it.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) health: Health,
    /// The server gave up waiting for its standbys: what it acknowledged may be lost in a fail-over.
    is_unreplicated: Arc<AtomicBool>,
    driver: AbortHandle,
    /// A pooler is between.
    pub(super) is_pooled: bool,
}

impl Link {
    pub(super) fn is_unreplicated(&self) -> bool {
        self.is_unreplicated.load(Ordering::Acquire)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let driver = &self.driver;
        driver.abort();
    }
}

impl Target {
    pub(super) fn new(options: PostgresOptions) -> Result<Self, Error> {
        Ok(Self {
            dialer: Dialer::new(options.is_encrypted)?,
            clock: Clock::system()?,
            options,
        })
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
        let limit = self.options.timeout;
        let connecting = self.connect_in_time(config, notified);
        let connected = self.clock.timeout(limit, connecting).await;
        connected.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "postgresql did not answer in time: address={} timeout={limit:?}; check host and port, and that a PostgreSQL listens there",
                self.options.address
            )))
        })
    }

    async fn connect_in_time(
        &self,
        plain: Config,
        notified: impl FnMut(&str) + Send + 'static,
    ) -> Result<Link, Error> {
        // The functions need it, and refuse any other.
        let mut config = plain.clone();
        config.options("-c default_transaction_isolation=read\\ committed");
        match self.dialer.dial(&config).await {
            Err(error) if is_of_a_pooler(&error) => {
                let dialled = self.dialer.dial(&plain).await;
                let mut link = self.driven(dialled, notified)?;
                link.is_pooled = true;
                Ok(link)
            }
            dialled => self.driven(dialled, notified),
        }
    }

    fn driven(
        &self,
        dialled: Result<(Client, Driver), PgError>,
        mut notified: impl FnMut(&str) + Send + 'static,
    ) -> Result<Link, Error> {
        let (client, driver) =
            dialled.map_err(|error| fault::not_connected("connect", &self.options, error))?;
        let health = Health::default();
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let (ended, gave_up) = (MarksDead(health.clone()), Arc::clone(&is_unreplicated));
        let driver = tokio::spawn(async move {
            let _ended = ended;
            let received = |message| match message {
                AsyncMessage::Notification(message) => notified(message.payload()),
                message if dialer::is_unreplicated(&message) => {
                    gave_up.store(true, Ordering::Release);
                }
                _ => {}
            };
            driver.drive(received).await;
        });
        Ok(Link {
            client,
            health,
            is_unreplicated,
            driver: driver.abort_handle(),
            is_pooled: false,
        })
    }
}

/// PgBouncer refuses options at the connect, unless it is configured to ignore them.
fn is_of_a_pooler(error: &PgError) -> bool {
    let answer = error.as_db_error();
    answer.is_some_and(|answer| {
        *answer.code() == SqlState::PROTOCOL_VIOLATION && answer.message().contains("options")
    })
}
