//! [`Connection`]: a connection that is made again when it is dead.
//!
//! It is given up when it has not answered anybody for the time of a request, also when our caller
//! ran out of patience and dropped the request, and the next request makes a new one, by [a task of
//! its own](crate::store::dial).
//!
//! The server executes the requests of a connection one after the other. So few
//! [asks](Connection::turn) and [ends](Connection::end) are on their way at a time, of one key only
//! one of each. A key that other calls hold on to is not asked for again at once, and all such keys
//! together have one request on its way: requests for other keys would wait behind them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fault::{self, NoAnswer};
use super::leaving::Leaving;
use super::link::Link;
use super::preflight::Server;
use super::suspects::Suspects;
use super::target::Target;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::room::make_room;
use crate::store::dial::{self, InFlight, PATIENCE, Pooled, Reconnecting};

/// How many asks are on their way over one connection, each for another key. Those that wait here
/// cost the server nothing, and can be dropped. If other calls hold up each of them, for 400 ms,
/// the last is still answered within the time of a request.
const ASKS: usize = 4;
/// The same for ends. Each is held up for 200 ms at most.
const ENDS: usize = 8;
/// How long an ask waits for its turn. It ends before the time of a request does, so nobody doubts
/// what was not sent.
const TURN: Duration = Duration::from_millis(250);
/// For how long a connection that other calls hold up may answer nobody: longer than a few of them
/// wait for a lock.
const HELD_UP: Duration = Duration::from_secs(1);

/// The parameters of a statement, with their types, so that nothing has to be prepared: one round
/// trip, also behind a pooler.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// One connection of one runtime, for one purpose. Made on first use.
pub(super) struct Connection {
    target: Arc<Target>,
    inner: Reconnecting<LiveLink>,
    asks: Semaphore,
    ends: Semaphore,
    suspects: Suspects,
    asked: OneAtATime,
    ended: OneAtATime,
    /// The releases that wait for an end of their key.
    pub(super) leaving: Leaving,
}

/// One request of each key at a time, in their order.
#[derive(Default)]
struct OneAtATime(Mutex<HashMap<Key, Arc<Semaphore>>>);

impl OneAtATime {
    fn of(&self, key: &Key) -> Arc<Semaphore> {
        let mut keys = self.0.lock();
        // Those that nobody waits for are forgotten before there are more.
        make_room(&mut keys, |of_key| Arc::strong_count(of_key) > 1);
        let of_key = keys.entry(key.clone());
        Arc::clone(of_key.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

/// The right to ask for a key, until it is dropped.
pub(super) struct Turn<'a> {
    _of_key: Option<OwnedSemaphorePermit>,
    _of_suspects: Option<SemaphorePermit<'a>>,
    _of_connection: Option<SemaphorePermit<'a>>,
}

#[derive(Clone)]
struct LiveLink {
    link: Arc<Link>,
    server: Arc<Server>,
}

impl dial::Live for LiveLink {
    fn is_dead(&self) -> bool {
        self.link.health.is_dead()
    }

    fn was_useful(&self) -> bool {
        self.link.health.has_served()
    }
}

impl Pooled for Connection {
    type Target = Target;

    fn new(target: Arc<Target>) -> Self {
        Self {
            inner: Reconnecting::new(target.connecting()),
            target,
            asks: Semaphore::new(ASKS),
            ends: Semaphore::new(ENDS),
            suspects: Suspects::default(),
            asked: OneAtATime::default(),
            ended: OneAtATime::default(),
            leaving: Leaving::default(),
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

    /// Waits for the right to ask for a key. The asks of a key come one after the other, in the
    /// order of this call.
    ///
    /// # Errors
    ///
    /// If other calls about the key took too long a moment ago, or if there is no turn in time.
    pub(super) async fn turn(&self, key: &Key) -> Result<Turn<'_>, NoAnswer> {
        let clock = &self.target.clock;
        let of_key = self.asked.of(key);
        let turn = async {
            Turn {
                // An error says that it was closed, which nobody does.
                _of_key: of_key.acquire_owned().await.ok(),
                _of_suspects: self.suspects.turn(key).await,
                _of_connection: self.asks.acquire().await.ok(),
            }
        };
        let turn = clock.timeout(TURN, turn).await;
        let turn = turn.ok_or_else(|| NoAnswer::NotSent(fault::too_many()))?;
        self.ensure_free(key, "acquire")?;
        Ok(turn)
    }

    /// Sends a call that ends or changes the hold of a key, after the others of that key over this
    /// connection, and once more if other calls about the key take too long.
    ///
    /// # Errors
    ///
    /// As [`turn`](Self::turn) without a limit of its own, and as [`ask`](Self::ask).
    pub(super) async fn end(
        &self,
        key: &Key,
        doing: &'static str,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, NoAnswer> {
        let _turn = self.turn_to_end(key).await;
        self.end_in_turn(key, doing, statement, parameters).await
    }

    /// Waits until no other [end](Self::end) of the key is on its way.
    pub(super) async fn turn_to_end(&self, key: &Key) -> Option<OwnedSemaphorePermit> {
        // An error says that it was closed, which nobody does.
        self.ended.of(key).acquire_owned().await.ok()
    }

    /// As [`end`](Self::end), in the [turn](Self::turn_to_end) of the key.
    pub(super) async fn end_in_turn(
        &self,
        key: &Key,
        doing: &'static str,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, NoAnswer> {
        let mut answer = self.end_once(key, Some(doing), statement, parameters).await;
        if answer.as_ref().is_err_and(NoAnswer::is_blocked) {
            // It changed nothing. Requests for other keys go between the two.
            answer = self.end_once(key, None, statement, parameters).await;
        }
        answer
    }

    /// `doing`: unless other calls about the key took too long a moment ago.
    async fn end_once(
        &self,
        key: &Key,
        doing: Option<&'static str>,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, NoAnswer> {
        let _of_suspects = self.suspects.turn(key).await;
        let _of_connection = self.ends.acquire().await.ok();
        if let Some(doing) = doing {
            self.ensure_free(key, doing)?;
        }
        let answer = self.ask(statement, parameters).await;
        self.note(key, &answer);
        answer
    }

    /// That no call about the key took too long a moment ago.
    fn ensure_free(&self, key: &Key, doing: &str) -> Result<(), NoAnswer> {
        if self.suspects.pauses(key, &self.target.clock.stamp()) {
            return Err(NoAnswer::NotSent(fault::blocked(doing)));
        }
        Ok(())
    }

    /// Notes whether other calls about the key took too long.
    pub(super) fn note<T>(&self, key: &Key, answer: &Result<T, NoAnswer>) {
        match answer {
            Ok(_) => self.suspects.remove(key),
            Err(error) if error.is_blocked() => {
                self.suspects.add(key, self.target.clock.stamp());
            }
            Err(_) => {}
        }
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
    ) -> Result<Vec<Row>, NoAnswer> {
        self.send(statement, parameters, HELD_UP).await
    }

    /// As [`ask`](Self::ask), for a request that waits for no other call: a connection that is
    /// silent is given up soon.
    pub(super) async fn renew(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, NoAnswer> {
        self.send(statement, parameters, PATIENCE).await
    }

    async fn send(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
        patience: Duration,
    ) -> Result<Vec<Row>, NoAnswer> {
        let link = self.ready().await.map_err(NoAnswer::NotSent)?.link;
        let clock = &self.target.clock;
        let in_flight = InFlight::begin(clock, &link.health).patient(patience);
        let asked = link.client.query_typed(statement, parameters);
        let answer = clock.timeout(self.target.options.timeout, asked).await;
        let answer = match answer {
            Some(Ok(_)) if link.is_unreplicated() => Err(NoAnswer::Unanswered(
                "the server stopped waiting for its standbys",
            )),
            Some(Ok(rows)) => match waits(&rows) {
                Some(since) if !self.has_waited(&link, since).await => Err(NoAnswer::Unanswered(
                    "the server's settings changed while it waited for its standbys",
                )),
                _ => Ok(rows),
            },
            Some(Err(error)) => Err(NoAnswer::of(error)),
            None => return Err(NoAnswer::Unanswered("no answer in time")),
        };
        let health = in_flight.end();
        match &answer {
            Err(NoAnswer::Unanswered(_)) => health.give_up(),
            // The next connection finds the new primary.
            Err(failure) if failure.is_of_another_server() => health.give_up(),
            Err(_) => health.answered(),
            Ok(_) => {
                health.answered();
                health.served();
            }
        }
        answer
    }

    /// Whether the server waited for its standbys to the end.
    async fn has_waited(&self, link: &Link, since: f64) -> bool {
        let (clock, limit) = (&self.target.clock, self.target.options.timeout);
        clock.timeout(limit, link.has_waited(since)).await == Some(true)
    }

    /// The life that this store saw last.
    pub(super) fn seen(&self) -> Option<String> {
        self.target.seen()
    }

    async fn ready(&self) -> Result<LiveLink, Error> {
        let connect = || connect(Arc::clone(&self.target));
        let ended = || {
            Error::unavailable(
                "the connection to postgresql ended as soon as it was made; try later",
            )
        };
        self.inner.ready(connect, ended).await
    }
}

/// Since when the server waited for its standbys, if it had to, and if the statement asks for that.
fn waits(rows: &[Row]) -> Option<f64> {
    rows.first()?.try_get("waits").ok()?
}

async fn connect(target: Arc<Target>) -> Result<LiveLink, Error> {
    let options = &target.options;
    let link = target.connect(options.config.clone(), |_| {}).await?;
    let seen = target.seen();
    let asked = Server::ask(&link.client, seen.as_deref());
    let server = target.clock.timeout(options.timeout, asked);
    let server = server.await.ok_or_else(|| silent(&target))?;
    let server = server.map_err(|error| fault::not_connected("hello", options, error))?;
    server.check(options)?;
    target.saw(&server.life);
    target.compare(&server);
    Ok(LiveLink {
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
