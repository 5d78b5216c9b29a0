//! [`Session`]: one connection for as long as it lasts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ErrorKind as Redis, Pipeline, RedisError, ServerErrorKind, Value};
use parking_lot::Mutex;

use super::super::cluster::Slot;
use super::super::mark::Mark;
use super::failure::{Failure, without_script};
use super::opened::Limit;
use super::preflight::Server;
use crate::clock::Clock;
use crate::store::dial::{self, Health, InFlight};

/// After so long without a proof that it was a master (ns), a server is compared with what it was before a grant is believed.
const IDLE: u64 = 1_000_000_000;

/// A connection that was made.
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) health: Health,
    pub(super) limit: Limit,
    pub(super) server: Arc<Server>,
    /// The marks of the slots for which the server was judged; `None` where there are no slots.
    pub(super) marks: Mutex<HashMap<Option<Slot>, Arc<Mark>>>,
    /// Held by whoever has the server judged.
    pub(super) judging: tokio::sync::Mutex<()>,
    /// When the newest request was sent that a master has executed, in nanoseconds of the clock that counts a suspend.
    pub(super) proven: AtomicU64,
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

    /// What the server answered when it was judged, if it may grant.
    pub(in super::super) fn mark(&self, slot: Option<Slot>) -> Option<Arc<Mark>> {
        self.live.marks.lock().get(&slot).cloned()
    }

    /// Waits until nobody else has the server judged over this connection.
    pub(in super::super) async fn judging(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.live.judging.lock().await
    }

    pub(in super::super) fn learn(&self, slot: Option<Slot>, mark: Arc<Mark>) {
        self.live.marks.lock().insert(slot, mark);
    }

    /// The server has to be judged again. A mark that was learned meanwhile stays.
    pub(in super::super) fn forget(&self, slot: Option<Slot>, mark: &Arc<Mark>) {
        let mut marks = self.live.marks.lock();
        if marks
            .get(&slot)
            .is_some_and(|known| Arc::ptr_eq(known, mark))
        {
            marks.remove(&slot);
        }
    }

    /// Whether the server may have been deposed and promoted again since it was a master.
    pub(in super::super) fn is_idle(&self) -> bool {
        let proven = self.live.proven.load(Ordering::Relaxed);
        self.clock.boot().saturating_sub(proven) > IDLE
    }

    /// A request that was sent then was executed by a master: it has written, or the server was judged. A replica answers those that
    /// only read too.
    pub(in super::super) fn proven(&self, sent: u64) {
        self.live.proven.fetch_max(sent, Ordering::Relaxed);
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
