//! [`Connection`] and [`Pool`]: connections that are used by one caller at a time, and never again after a call without an end.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error as PgError, NoTls, Row, Socket};

use super::fault;
use crate::model::error::Error;

/// Connections that are kept for the next caller, for each runtime.
const IDLE: usize = 8;

/// A connection. When it is dropped its socket is closed at once, and the server rolls back what is open.
pub(super) struct Connection {
    pub(super) client: Arc<Client>,
    /// The server gave up waiting for its standbys: what it acknowledged may be lost in a fail-over.
    is_unreplicated: Arc<AtomicBool>,
    driver: AbortHandle,
    runtime: Id,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    async fn open(config: &Config, runtime: Handle) -> Result<Self, Error> {
        let (client, connection) = config
            .connect(NoTls)
            .await
            .map_err(|error| fault::into_error("connect", error))?;
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let driver = runtime.spawn(drive(connection, Arc::clone(&is_unreplicated)));
        Ok(Self {
            client: Arc::new(client),
            is_unreplicated,
            driver: driver.abort_handle(),
            runtime: runtime.id(),
        })
    }

    pub(super) fn is_unreplicated(&self) -> bool {
        self.is_unreplicated.load(Ordering::Acquire)
    }

    /// One statement that answers one row: one round trip, also behind a pooler.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, PgError> {
        self.client.query_typed_one(statement, parameters).await
    }

    /// A statement and one that has no parameters, sent together: one round trip.
    pub(super) async fn ask_beside(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        plain: Plain,
    ) -> Both {
        let asked = self.ask(statement, parameters);
        // Both are sent at their first poll, in this order.
        match plain {
            Plain::Before(first) => {
                let (plain, asked) = join(self.client.batch_execute(first), asked).await;
                Both { asked, plain }
            }
            Plain::After(last) => {
                let (asked, plain) = join(asked, self.client.batch_execute(last)).await;
                Both { asked, plain }
            }
        }
    }
}

/// A statement without parameters or an answer.
pub(super) enum Plain {
    Before(&'static str),
    After(&'static str),
}

/// The answers to two statements that were sent together.
pub(super) struct Both {
    pub(super) asked: Result<Row, PgError>,
    pub(super) plain: Result<(), PgError>,
}

/// Drives a connection to its end. A notice comes before the answer of the statement that it belongs to.
async fn drive(
    mut connection: tokio_postgres::Connection<Socket, tokio_postgres::tls::NoTlsStream>,
    is_unreplicated: Arc<AtomicBool>,
) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        // By the server's routine, because its messages are translated.
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some("SyncRepWaitForLSN")
        {
            is_unreplicated.store(true, Ordering::Release);
        }
    }
}

/// The connections of a fence. A connection is driven by the runtime that made it, and is used by that runtime only.
pub(super) struct Pool {
    config: Config,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            idle: Mutex::default(),
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// A connection in which nothing is open.
    pub(super) async fn take(&self) -> Result<Connection, Error> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid(
                "postgresql was asked outside of a tokio runtime; ask from a task of one",
            )
        })?;
        let idle = {
            let mut idle = self.idle.lock();
            idle.retain(|connection| !connection.client.is_closed());
            let ours = idle.iter().position(|idle| idle.runtime == runtime.id());
            ours.map(|at| idle.swap_remove(at))
        };
        match idle {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.config, runtime).await,
        }
    }

    /// Keeps a connection in which nothing is open and every answer has come.
    pub(super) fn put_back(&self, connection: Connection) {
        if connection.client.is_closed() || connection.is_unreplicated() {
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
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .field("idle", &self.idle.lock().len())
            .finish_non_exhaustive()
    }
}
