//! [`Session`]: one connection for as long as it lasts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ErrorKind as Redis, Pipeline, RedisError, ServerErrorKind, Value};
use parking_lot::Mutex;

use super::super::cluster::Slot;
use super::super::fault;
use super::super::mark::Mark;
use super::super::script::{Call, Script};
use super::failure::{Failure, without_script};
use super::opened::Limit;
use super::preflight::Server;
use crate::clock::Clock;
use crate::store::dial::{self, Health, InFlight};

/// After so long without a proof that it was a master, a server is compared with what it was before
/// a grant is believed.
pub(in super::super) const IDLE: Duration = Duration::from_secs(1);

/// One connection, for as long as it lasts.
pub(in super::super) struct Session {
    pub(super) connection: MultiplexedConnection,
    pub(super) health: Health,
    pub(super) limit: Limit,
    pub(super) clock: Clock,
    /// Whether the next connection may log in with other credentials.
    pub(super) login_changes: bool,
    /// What the server reported about itself when the connection was made.
    pub(in super::super) server: Server,
    /// The marks of the slots for which the server was judged; `None` where there are no slots.
    pub(super) marks: Mutex<HashMap<Option<Slot>, Arc<Mark>>>,
    /// Held by whoever has the server judged.
    pub(in super::super) judging: tokio::sync::Mutex<()>,
    /// When the newest request was sent that a master has executed, in nanoseconds of the clock
    /// that counts a suspend.
    pub(super) proven: AtomicU64,
}

impl dial::Live for Arc<Session> {
    fn is_dead(&self) -> bool {
        self.health.is_dead()
    }

    fn was_useful(&self) -> bool {
        self.health.has_served()
    }
}

impl Session {
    /// What the server answered when it was judged, if it may grant.
    pub(in super::super) fn mark(&self, slot: Option<Slot>) -> Option<Arc<Mark>> {
        self.marks.lock().get(&slot).cloned()
    }

    pub(in super::super) fn learn(&self, slot: Option<Slot>, mark: Arc<Mark>) {
        self.marks.lock().insert(slot, mark);
    }

    /// The server has to be judged again. A mark that was learned meanwhile stays.
    pub(in super::super) fn forget(&self, slot: Option<Slot>, mark: &Arc<Mark>) {
        let mut marks = self.marks.lock();
        if marks
            .get(&slot)
            .is_some_and(|known| Arc::ptr_eq(known, mark))
        {
            marks.remove(&slot);
        }
    }

    /// Whether the server may have been deposed and promoted again since it was a master.
    pub(in super::super) fn is_idle(&self) -> bool {
        let proven = self.proven.load(Ordering::Relaxed);
        Duration::from_nanos(self.clock.boot().saturating_sub(proven)) > IDLE
    }

    /// A request that was sent then was executed by a master: it has written, or the server was
    /// judged. A replica answers those that only read too.
    pub(in super::super) fn proven(&self, sent: u64) {
        self.proven.fetch_max(sent, Ordering::Relaxed);
    }

    /// The server did what a caller asked for over this connection.
    pub(in super::super) fn served(&self) {
        self.health.served();
    }

    /// Makes the next request connect again.
    pub(super) fn give_up(&self) {
        self.health.give_up();
    }

    /// Sends one command over this connection or not at all, and waits for the answer.
    pub(in super::super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        let in_flight = InFlight::begin(&self.clock, &self.health);
        let answer = command.query_async(&mut connection);
        let answer = self.limit.of(answer).await;
        self.judged(in_flight, answer)
    }

    /// Runs a script over this connection or not at all.
    pub(in super::super) async fn run(
        &self,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        match self.ask(&call.by_hash(script)).await {
            Err(failure) if failure.is_unknown_script() => self.ask(&call.by_text(script)).await,
            answer => answer,
        }
    }

    /// The same at the node to which the slot of its keys is moving.
    pub(in super::super) async fn run_asking(
        &self,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        let mut both = ::redis::pipe();
        both.cmd("ASKING");
        both.add_command(call.by_text(script));
        let answers = self.ask_all(&both).await?;
        let answer = answers.into_iter().nth(1).unwrap_or(Ok(Value::Nil));
        answer.map_err(Failure::of)
    }

    /// Sends commands at once over this connection or not at all, and waits for the answers,
    /// refusals among them.
    pub(in super::super) async fn ask_all(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Failure> {
        let mut connection = self.connection.clone();
        let in_flight = InFlight::begin(&self.clock, &self.health);
        let answer = connection.send_packed_commands(commands, 0, commands.len());
        let answer = self.limit.of(answer).await;
        let answers = self.judged(in_flight, answer)?.into_iter();
        let answers = answers.map(|answer| answer.extract_error().map_err(without_script));
        let answers: Vec<_> = answers.collect();
        if let Some(Err(first)) = answers.first()
            && self.is_another_login(first)
        {
            self.give_up();
            return Err(login_expired(first));
        }
        // A refusal of one of many is an answer among the others.
        let ends = |refusal| is_of_a_replica(refusal) || self.is_another_login(refusal);
        if answers.iter().any(|one| one.as_ref().is_err_and(ends)) {
            self.give_up();
        }
        Ok(answers)
    }

    /// Ends a request, and gives the connection up if the answer says so.
    fn judged<T>(
        &self,
        in_flight: InFlight<'_>,
        answer: Result<T, RedisError>,
    ) -> Result<T, Failure> {
        let health = in_flight.end();
        let answer = answer.map_err(Failure::of);
        if !matches!(answer, Err(Failure::Unanswered(_))) {
            health.answered();
        }
        answer.map_err(|failure| {
            match &failure {
                Failure::Refused(error) if self.is_another_login(error) => {
                    health.give_up();
                    return login_expired(error);
                }
                Failure::Refused(error) if is_of_a_replica(error) => health.give_up(),
                Failure::Unanswered(_) => health.give_up(),
                _ => {}
            }
            failure
        })
    }

    /// The server does not know our login any more (a token that has expired), and the next connect
    /// asks for another one.
    fn is_another_login(&self, error: &RedisError) -> bool {
        self.login_changes
            && (error.kind() == Redis::AuthenticationFailed
                || matches!(error.code(), Some("NOAUTH" | "WRONGPASS")))
    }
}

fn login_expired(error: &RedisError) -> Failure {
    Failure::Answered(fault::refused(error, "know our login any more").that_may_pass())
}

/// The master was made a replica, perhaps one without a link to its master. The next connection
/// finds out what it is now, and behind sentinels where the master is.
fn is_of_a_replica(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        Redis::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    )
}
