//! [`Connection`]: a connection that is made again when it is dead.
//!
//! After a time-out requests of unknown fate may be in its queue. So it is given up then, also when our caller ran out of
//! patience and dropped the request, and the next request makes a new one, by [a task of its own](crate::store::dial).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fault::{self, Failure};
use super::preflight::Server;
use super::target::{Link, Target};
use crate::clock::{Clock, Reading};
use crate::model::error::Error;
use crate::store::dial::{Connecting, Found, Health};

/// The parameters of a statement, with their types, so that nothing has to be prepared: one round trip, also behind a pooler.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// One connection of one runtime, for one purpose. Made on first use.
pub(super) struct Connection {
    target: Arc<Target>,
    connecting: Connecting,
    live: Arc<Mutex<Option<Live>>>,
}

#[derive(Clone)]
struct Live {
    link: Arc<Link>,
    server: Arc<Server>,
}

impl Connection {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self {
            connecting: target.connecting(),
            target,
            live: Arc::default(),
        }
    }

    /// Whether there is a connection, or one is being made, that its runtime still drives.
    pub(super) fn is_live(&self) -> bool {
        let lives = |live: &Live| !live.link.health.is_dead();
        self.connecting.is_under_way() || self.live.lock().as_ref().is_some_and(lives)
    }

    /// What the server reported about itself when the present connection was made.
    pub(super) async fn server(&self) -> Result<Arc<Server>, Error> {
        Ok(self.ready().await?.server)
    }

    /// Whether a pooler is known to be between.
    pub(super) fn is_pooled(&self) -> bool {
        present(&self.live).is_some_and(|live| live.link.is_pooled)
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
        let in_flight = InFlight::begin(clock, link.health.clone());
        let asked = link.client.query_typed(statement, parameters);
        let answer = clock.timeout(self.target.options.timeout, asked).await;
        let answer = match answer {
            Some(Ok(_)) if link.is_unreplicated() => Err(Failure::Unanswered(
                "the server stopped waiting for its standbys",
            )),
            Some(answer) => answer.map_err(Failure::of),
            None => Err(Failure::Unanswered("no answer in time")),
        };
        in_flight.end(answer)
    }

    /// The connection; a new one if there is none or it is dead.
    async fn ready(&self) -> Result<Live, Error> {
        if let Some(live) = present(&self.live) {
            return Ok(live);
        }
        let look = || {
            let dead = self.live.lock().take_if(|live| live.link.health.is_dead());
            match present(&self.live) {
                Some(_) => Found::Present,
                None => Found::Nothing {
                    was_useful: dead.is_some_and(|dead| dead.link.health.has_answered()),
                },
            }
        };
        self.connecting.wait(look, || self.connect()).await?;
        present(&self.live).ok_or_else(|| {
            Error::unavailable(
                "the connection to postgresql ended as soon as it was made; try later",
            )
        })
    }

    /// Connects for all callers that wait, and for the next ones.
    fn connect(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (target, live) = (Arc::clone(&self.target), Arc::clone(&self.live));
        async move {
            let options = &target.options;
            let link = target.connect(options.config.clone(), |_| {}).await?;
            let server = target
                .clock
                .timeout(options.timeout, Server::ask(&link.client));
            let server = server.await.ok_or_else(|| silent(&target))?;
            let server = server.map_err(|error| fault::not_connected("hello", options, error))?;
            server.check(options)?;
            *live.lock() = Some(Live {
                link: Arc::new(link),
                server: Arc::new(server),
            });
            Ok(())
        }
    }
}

fn present(live: &Mutex<Option<Live>>) -> Option<Live> {
    let live = live.lock();
    live.clone().filter(|live| !live.link.health.is_dead())
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

/// A request that was sent. If it is dropped late, or times out, its connection is given up.
struct InFlight<'a> {
    clock: &'a Clock,
    sent_at: Reading,
    health: Health,
    is_answered: bool,
}

impl<'a> InFlight<'a> {
    fn begin(clock: &'a Clock, health: Health) -> Self {
        Self {
            clock,
            sent_at: clock.fast(),
            health,
            is_answered: false,
        }
    }

    fn end<T>(mut self, answer: Result<T, Failure>) -> Result<T, Failure> {
        self.is_answered = true;
        match &answer {
            Err(Failure::Unanswered(_)) => self.health.give_up(),
            // The next connection finds the new primary.
            Err(failure) if failure.is_of_a_standby() => self.health.give_up(),
            _ => self.health.answered(),
        }
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.health.dropped(self.sent_at, self.clock.fast());
        }
    }
}
