//! [`Connection`]: a connection that is made again when it is dead.
//!
//! After a time-out requests of unknown fate may be in its queue. So it is given up then, also when our caller ran out of
//! patience and dropped the request, and the next request makes a new one, by [a task of its own](crate::store::dial).

use std::fmt;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fault::{self, Failure};
use super::link::Link;
use super::preflight::Server;
use super::target::Target;
use crate::model::error::Error;
use crate::store::dial::{self, InFlight, Pooled, Reconnecting};

/// The parameters of a statement, with their types, so that nothing has to be prepared: one round trip, also behind a pooler.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// One connection of one runtime, for one purpose. Made on first use.
pub(super) struct Connection {
    target: Arc<Target>,
    inner: Reconnecting<Live>,
}

#[derive(Clone)]
struct Live {
    link: Arc<Link>,
    server: Arc<Server>,
}

impl dial::Live for Live {
    fn is_dead(&self) -> bool {
        self.link.health.is_dead()
    }

    fn was_useful(&self) -> bool {
        self.link.health.has_answered()
    }
}

impl Pooled for Connection {
    type Target = Target;

    fn new(target: Arc<Target>) -> Self {
        Self {
            inner: Reconnecting::new(target.connecting()),
            target,
        }
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }
}

impl Connection {
    /// What the server reported about itself when the present connection was made.
    pub(super) async fn server(&self) -> Result<Arc<Server>, Error> {
        Ok(self.ready().await?.server)
    }

    /// Whether a pooler is known to be between.
    pub(super) fn is_pooled(&self) -> bool {
        (self.inner.present()).is_some_and(|live| live.link.is_pooled)
    }

    /// Sends one statement and waits for its rows.
    ///
    /// # Cancel safety
    ///
    /// A dropped request may be executed now, later or never.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let link = self.ready().await.map_err(Failure::NotSent)?.link;
        let clock = &self.target.clock;
        let in_flight = InFlight::begin(clock, &link.health);
        let asked = link.client.query_typed(statement, parameters);
        let answer = clock.timeout(self.target.options.timeout, asked).await;
        let answer = match answer {
            Some(Ok(_)) if link.is_unreplicated() => Err(Failure::Unanswered(
                "the server stopped waiting for its standbys",
            )),
            Some(answer) => answer.map_err(Failure::of),
            None => Err(Failure::Unanswered("no answer in time")),
        };
        let health = in_flight.end();
        match &answer {
            Err(Failure::Unanswered(_)) => health.give_up(),
            // The next connection finds the new primary.
            Err(failure) if failure.is_of_a_standby() => health.give_up(),
            _ => health.answered(),
        }
        answer
    }

    async fn ready(&self) -> Result<Live, Error> {
        let connect = || connect(Arc::clone(&self.target));
        let ended = || {
            Error::unavailable(
                "the connection to postgresql ended as soon as it was made; try later",
            )
        };
        self.inner.ready(connect, ended).await
    }
}

async fn connect(target: Arc<Target>) -> Result<Live, Error> {
    let options = &target.options;
    let link = target.connect(options.config.clone(), |_| {}).await?;
    let server = target
        .clock
        .timeout(options.timeout, Server::ask(&link.client));
    let server = server.await.ok_or_else(|| silent(&target))?;
    let server = server.map_err(|error| fault::not_connected("hello", options, error))?;
    server.check(options)?;
    Ok(Live {
        link: Arc::new(link),
        server: Arc::new(server),
    })
}

pub(super) fn silent(target: &Target) -> Error {
    let (address, limit) = (&target.options.address, target.options.timeout);
    Error::unavailable(format!(
        "postgresql did not answer in time: address={address} timeout={limit:?}; try later"
    ))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("is_live", &self.is_live())
            .finish_non_exhaustive()
    }
}
