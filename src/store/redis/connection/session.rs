//! [`Session`]: one connection for as long as it lasts.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ErrorKind as Redis, Pipeline, RedisError, ServerErrorKind, Value};

use super::failure::{Failure, without_script};
use super::opened::Limit;
use super::preflight::Server;
use crate::clock::{Clock, Stamp};
use crate::store::dial::{self, Health, InFlight};

/// A connection that was made.
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) health: Health,
    pub(super) limit: Limit,
    pub(super) server: Arc<Server>,
    /// Before the server was asked about itself.
    pub(super) asked_at: Stamp,
}

impl dial::Live for Arc<Live> {
    fn is_dead(&self) -> bool {
        self.health.is_dead()
    }

    fn was_useful(&self) -> bool {
        self.health.has_served()
    }
}

/// One connection, for as long as it lasts.
pub(in super::super) struct Session<'a> {
    pub(super) live: Arc<Live>,
    pub(super) clock: &'a Clock,
}

impl Session<'_> {
    /// What the server reported about itself when the connection was made.
    pub(in super::super) fn server(&self) -> &Server {
        &self.live.server
    }

    /// For how long at least the server has been what it is: since the connection was made, and before by its own uptime, if it
    /// would remember that it was a replica. Exact only up to `enough`.
    pub(in super::super) fn age(&self, enough: Duration) -> Duration {
        let server = &self.live.server;
        let uptime = server.uptime.filter(|_| server.remembers > enough);
        let then = uptime.unwrap_or_default();
        if then >= enough {
            return then;
        }
        then + self.clock.stamp().since(&self.live.asked_at)
    }

    /// The server did what a caller asked for over this connection.
    pub(in super::super) fn served(&self) {
        self.live.health.served();
    }

    /// Makes the next request connect again.
    pub(super) fn give_up(&self) {
        self.live.health.give_up();
    }

    /// Sends one command over this connection or not at all, and waits for the answer.
    pub(in super::super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut connection = self.live.connection.clone();
        let in_flight = InFlight::begin(self.clock, &self.live.health);
        let answer = command.query_async(&mut connection);
        let answer = self.live.limit.of(answer).await;
        judged(in_flight, answer)
    }

    /// Sends commands at once over this connection or not at all, and waits for the answers, refusals among them.
    pub(in super::super) async fn ask_all(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Failure> {
        let mut connection = self.live.connection.clone();
        let in_flight = InFlight::begin(self.clock, &self.live.health);
        let answer = connection.send_packed_commands(commands, 0, commands.len());
        let answer = self.live.limit.of(answer).await;
        let answers = judged(in_flight, answer)?.into_iter();
        let answers = answers.map(|answer| answer.extract_error().map_err(without_script));
        let answers: Vec<_> = answers.collect();
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

/// Ends a request, and gives its connection up if the answer says so.
fn judged<T>(in_flight: InFlight<'_>, answer: Result<T, RedisError>) -> Result<T, Failure> {
    let health = in_flight.end();
    let answer = answer.map_err(Failure::of);
    if !matches!(answer, Err(Failure::Unanswered(_))) {
        health.answered();
    }
    answer.inspect_err(|failure| {
        let is_replica = matches!(failure, Failure::Refused(error) if is_of_a_replica(error));
        if is_replica || matches!(failure, Failure::Unanswered(_)) {
            health.give_up();
        }
    })
}

/// The master was made a replica, perhaps one without a link to its master. The next connection finds out what it is now, and behind
/// sentinels where the master is.
fn is_of_a_replica(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        Redis::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    )
}
