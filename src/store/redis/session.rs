//! [`Session`]: one connection for as long as it lasts, and the signs by which it is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ErrorKind as Redis, Pipeline, RedisError, ServerErrorKind, Value};

use super::link::Failure;
use super::preflight::Server;
use crate::clock::{Clock, Reading};

/// A request that was dropped when its connection had not answered anybody for this long counts as timed out.
const PATIENCE: Duration = Duration::from_millis(100);

/// A connection that stands, or stood.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) health: Health,
    pub(super) server: Arc<Server>,
}

/// One connection, for as long as it lasts.
pub(super) struct Session<'a> {
    pub(super) live: Live,
    pub(super) clock: &'a Clock,
}

impl Session<'_> {
    /// What the server told of itself when the connection was made.
    pub(super) fn server(&self) -> &Server {
        &self.live.server
    }

    /// Lets the next request connect anew, and so read anew what the server tells of itself.
    pub(super) fn give_up(&self) {
        self.live.health.give_up();
    }

    /// As [`Link::ask`], over this connection or not at all.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut connection = self.live.connection.clone();
        let in_flight = InFlight::begin(self.clock, self.live.health.clone());
        let answer = command.query_async(&mut connection).await;
        in_flight.end(answer)
    }

    /// As [`Link::ask_all`], over this connection or not at all.
    pub(super) async fn ask_all(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Failure> {
        let mut connection = self.live.connection.clone();
        let in_flight = InFlight::begin(self.clock, self.live.health.clone());
        let answer = connection
            .send_packed_commands(commands, 0, commands.len())
            .await;
        let answers = in_flight.end(answer)?.into_iter();
        let answers: Vec<_> = answers.map(Value::extract_error).collect();
        // A refusal of one of many is an answer among the others.
        if answers
            .iter()
            .any(|one| one.as_ref().is_err_and(is_of_a_replica))
        {
            self.give_up();
        }
        Ok(answers)
    }
}

/// Whether a connection is dead. Cloning is cheap; all clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Health(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    is_dead: AtomicBool,
    /// When the first request was sent that was dropped since the last answer; 0: none was.
    silent_since: AtomicU64,
}

impl Health {
    pub(super) fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::Acquire)
    }

    pub(super) fn give_up(&self) {
        self.0.is_dead.store(true, Ordering::Release);
    }

    fn answered(&self) {
        // Mostly there is nothing to forget, and then the line is not written to.
        if self.0.silent_since.load(Ordering::Relaxed) != 0 {
            self.0.silent_since.store(0, Ordering::Relaxed);
        }
    }

    /// A request was dropped. Callers that are less patient than we are add up.
    fn dropped(&self, sent_at: Reading, now: Reading) {
        let sent = sent_at.nanos.max(1);
        let first =
            self.0
                .silent_since
                .compare_exchange(0, sent, Ordering::Relaxed, Ordering::Relaxed);
        let since = first.map_or_else(|earlier| earlier, |_| sent);
        let silent = Duration::from_nanos(now.nanos.saturating_sub(since));
        if now.lane != sent_at.lane || silent >= PATIENCE {
            self.give_up();
        }
    }
}

/// Marks a connection dead when its driver drops it.
pub(super) struct MarksDead(pub(super) Health);

impl Drop for MarksDead {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// A request on its way. If it is dropped late, or times out, its connection is given up.
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

    fn end<T>(mut self, answer: Result<T, RedisError>) -> Result<T, Failure> {
        self.is_answered = true;
        self.health.answered();
        answer.map_err(|error| {
            let failure = Failure::of(error);
            let is_replica = matches!(&failure, Failure::Refused(error) if is_of_a_replica(error));
            if is_replica || matches!(failure, Failure::Unanswered(_)) {
                self.health.give_up();
            }
            failure
        })
    }
}

/// The master was made a replica: the next connection finds out what it is now, and behind sentinels, where the master is.
fn is_of_a_replica(error: &RedisError) -> bool {
    error.kind() == Redis::Server(ServerErrorKind::ReadOnly)
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        self.health.dropped(self.sent_at, self.clock.fast());
    }
}
