//! [`RedisClient`]: what every operation of the store uses.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::redis::Value;
use parking_lot::Mutex;

use super::claims::Claims;
use super::cluster::{Passage, Slot};
use super::connection::{Connection, Failure, Purpose, Session, Target, confirmed};
use super::judge::{Judged, Reached};
use super::mark::Mark;
use super::options::RedisOptions;
use super::script::{Call, Script};
use super::servers::Servers;
use crate::clock::{ClockKind, Stamp};
use crate::model::key::Key;
use crate::store::{Claim, Fencing, LockMode};

/// The servers of a store, how they are used, and what was seen of them.
#[derive(Debug)]
pub(super) struct RedisClient {
    pub(super) target: Arc<Target>,
    pub(super) servers: Servers,
    pub(super) fencing: Fencing,
    pub(super) claims: Claims,
    /// The slots whose server was judged to grant; `None` for the only server. If their marker is missing later, it was lost.
    judged: Mutex<HashSet<Option<Slot>>>,
    /// The log has the warning about the present wait.
    pub(super) is_wait_logged: AtomicBool,
}

/// What a script answered that names the mark.
pub(super) struct Ran {
    pub(super) answer: Value,
    /// How many replicas have it; `None`: nobody waited for them.
    pub(super) confirmed: Option<u32>,
    /// The server is not what it was when the mark was told, so a grant may be of a server that has forgotten one.
    pub(super) is_doubtful: bool,
}

impl RedisClient {
    pub(super) fn new(target: Arc<Target>, servers: Servers, fencing: Fencing) -> Self {
        Self {
            claims: Claims::new(target.clock().clone()),
            target,
            servers,
            fencing,
            judged: Mutex::default(),
            is_wait_logged: AtomicBool::new(false),
        }
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.target.options
    }

    pub(super) fn now(&self) -> Stamp {
        self.target.clock().stamp()
    }

    pub(super) fn was_judged(&self, slot: Option<Slot>) -> bool {
        self.judged.lock().contains(&slot)
    }

    pub(super) fn note_judged(&self, slot: Option<Slot>) {
        self.judged.lock().insert(slot);
    }

    /// The connection that attempts use. A wait for replicas delays what follows it there.
    pub(super) fn attempt_purpose(&self) -> Purpose {
        if self.options().waits_for_replicas() {
            Purpose::Replicated
        } else {
            Purpose::Ask
        }
    }

    /// The part of the servers' names that the keys of a lock share with each other; a single server has none.
    pub(super) fn slot_of(&self, key: &Key) -> Option<Slot> {
        match &self.servers {
            Servers::One(_) => None,
            Servers::Many(_) => Some(Slot::of(self.options().names.lock(key))),
        }
    }

    /// Runs a script at the server that has the lock.
    pub(super) async fn run(
        &self,
        key: &Key,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        let names = &self.options().names;
        self.servers.run(names, key, script, call).await
    }

    /// Runs a script that ends or changes a hold, and then moves the line, so it names the mark: an empty one if the server may not
    /// grant, or cannot be judged. Then the next in line asks within a second.
    pub(super) async fn run_marked(
        &self,
        key: &Key,
        script: &Script,
        call: impl Fn(&str) -> Call + Sync,
    ) -> Result<Value, Failure> {
        let (names, slot, call) = (&self.options().names, self.slot_of(key), &call);
        let run = |connection: Arc<Connection>, is_asking: bool| async move {
            if is_asking {
                // The node that the slot moves to may know no marker yet.
                return call("").run_asking(script, &connection).await;
            }
            let session = connection.session().await.map_err(Failure::NotSent)?;
            let reached = self.reached(&connection, &session, slot, Duration::ZERO);
            let answer = match reached.judged().await {
                Ok(Judged::Mark(mark)) => {
                    let (sent, call) = (self.now(), call(&mark.text));
                    let ran = reached.run(&mark, script, &call, false).await?;
                    if ran.answer == Value::Int(1) {
                        session.proven(sent.on(ClockKind::Boot));
                    }
                    ran.answer
                }
                // A node that has not got the slot refuses this too, and names the other.
                Ok(Judged::Waits(_)) | Err(Failure::Answered(_) | Failure::Refused(_)) => {
                    call("").run_in(script, &session).await?
                }
                Err(failure) => return Err(failure),
            };
            session.served();
            Ok(answer)
        };
        let how = (Purpose::Ask, Passage::Follows);
        self.servers.at(names, key, how, run).await
    }

    pub(super) fn reached<'a>(
        &'a self,
        connection: &'a Connection,
        session: &'a Session<'a>,
        slot: Option<Slot>,
        extra: Duration,
    ) -> Reached<'a> {
        Reached {
            client: self,
            connection,
            session,
            slot,
            extra,
        }
    }
}

impl Reached<'_> {
    /// Runs a script that names the mark over this connection or not at all. After an idle second the server is compared in the same
    /// write: it may have been deposed and promoted again meanwhile. `waits`: for the replicas too.
    pub(super) async fn run(
        &self,
        mark: &Arc<Mark>,
        script: &Script,
        call: &Call,
        waits: bool,
    ) -> Result<Ran, Failure> {
        let (session, options) = (self.session, self.client.options());
        let sent = self.client.now().on(ClockKind::Boot);
        let was_idle = session.is_idle();
        if !was_idle && !waits {
            return Ok(Ran {
                answer: call.run_in(script, session).await?,
                confirmed: None,
                is_doubtful: false,
            });
        }
        let mut by_text = false;
        loop {
            let mut all = ::redis::pipe();
            if was_idle {
                all.add_command(self.compares());
            }
            all.add_command(if by_text {
                call.by_text(script)
            } else {
                call.by_hash(script)
            });
            if waits {
                all.add_command(options.wait_for_replicas());
            }
            let mut answers = session.ask_all(&all).await?.into_iter();
            let compared = was_idle.then(|| answers.next()).flatten();
            let answer = answers
                .next()
                .unwrap_or(Ok(Value::Nil))
                .map_err(Failure::of);
            let confirmed = waits.then(|| confirmed(answers.next()));
            let is_doubtful = match compared {
                Some(compared) => !self.is_same(compared.map_err(Failure::of), mark).await?,
                None => false,
            };
            if was_idle && !is_doubtful {
                session.proven(sent);
            }
            match answer {
                Err(failure) if failure.is_unknown_script() && !by_text => by_text = true,
                answer => {
                    return Ok(Ran {
                        answer: answer?,
                        confirmed,
                        is_doubtful,
                    });
                }
            }
        }
    }
}

/// The text that is a claim, and its place in the line.
pub(super) fn claim_parts(claim: &Claim) -> ([u8; 32], &'static str, &str) {
    let mode = match claim.mode {
        LockMode::Exclusive => " x ",
        LockMode::Write => " w ",
        LockMode::Read => " r ",
    };
    (claim.owner.digits(), mode, claim.label.as_str())
}
