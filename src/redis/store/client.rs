//! [`RedisClient`]: what every operation of the store uses.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::{Cmd, Value};
use parking_lot::Mutex;

use super::claims::Claims;
use super::cluster::{Passage, Slot};
use super::connection::{Connection, Failure, Purpose, Target, confirmed};
use super::judge::{Judged, Reached};
use super::mark::Mark;
use super::notes::Noted;
use super::options::RedisOptions;
use super::script::{Call, Script};
use super::servers::Servers;
use crate::clock::{ClockKind, Stamp};
use crate::model::key::Key;
use crate::store::{Claim, Fencing, LockMode, MAX_SKEW, Share};

/// The servers of a store, how they are used, and what was seen of them.
#[derive(Debug)]
pub(super) struct RedisClient {
    pub(super) target: Arc<Target>,
    pub(super) servers: Servers,
    pub(super) fencing: Fencing,
    pub(super) claims: Claims,
    /// The slots whose server was judged to grant; `None` for the only server. If their marker is
    /// missing later, it was lost.
    pub(super) judged: Mutex<HashSet<Option<Slot>>>,
    pub(super) noted: Noted,
    /// The log has the warning about the present wait.
    pub(super) is_wait_logged: AtomicBool,
    /// It is a member of a quorum, or has voted as one.
    pub(super) is_member: AtomicBool,
}

/// What one of several commands was answered.
type Answer = Result<Value, Failure>;

/// What a script answered that names the mark.
pub(super) struct Ran {
    pub(super) answer: Value,
    /// How many replicas have it; `None`: nobody waited for them.
    pub(super) confirmed: Option<u32>,
    /// The server is not what it was when it answered with the mark, so a grant may be of a server
    /// that has forgotten one.
    pub(super) is_doubtful: bool,
}

impl RedisClient {
    pub(super) fn new(
        target: Arc<Target>,
        servers: Servers,
        fencing: Fencing,
        is_member: bool,
    ) -> Self {
        Self {
            claims: Claims::new(target.clock().clone()),
            target,
            servers,
            fencing,
            judged: Mutex::default(),
            noted: Noted::default(),
            is_wait_logged: AtomicBool::new(false),
            is_member: AtomicBool::new(is_member),
        }
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.target.options
    }

    pub(super) fn now(&self) -> Stamp {
        self.target.clock().stamp()
    }

    /// For how long a server that may have forgotten locks grants nothing. Tokens of a quorum's
    /// members are times, of which one may be ahead of the others.
    pub(super) fn wait(&self) -> Duration {
        let is_member = self.is_member.load(Ordering::Relaxed);
        self.options().max_ttl + if is_member { MAX_SKEW } else { Duration::ZERO }
    }

    /// The connection that attempts use. A wait for replicas delays what follows it there.
    pub(super) fn attempt_purpose(&self) -> Purpose {
        if self.options().waits_for_replicas() {
            Purpose::Replicated
        } else {
            Purpose::Ask
        }
    }

    /// The part of the servers' names that the keys of a lock share with each other; a single
    /// server has none.
    pub(super) fn slot_of(&self, key: &Key) -> Option<Slot> {
        match &self.servers {
            Servers::One(_) => None,
            Servers::Many(_) => Some(Slot::of(self.options().names.lock(key))),
        }
    }

    /// The same by the name of a key of that lock.
    pub(super) fn slot_of_name(&self, name: &[u8]) -> Option<Slot> {
        match &self.servers {
            Servers::One(_) => None,
            Servers::Many(_) => Some(Slot::of(name)),
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

    /// Runs a script that ends or changes a hold, and then moves the line, so it names the mark: an
    /// empty one if the server may not grant, or cannot be judged. Then the next in line asks
    /// within a second. `has_written`: whether such an answer shows that the script wrote, which
    /// only a master does.
    pub(super) async fn run_marked(
        self: &Arc<Self>,
        key: &Key,
        script: &Script,
        call: impl Fn(&str) -> Call + Sync,
        has_written: fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        let (names, slot, call) = (&self.options().names, self.slot_of(key), &call);
        let run = |connection: Arc<Connection>, is_asking: bool| async move {
            let reached = self.reach(connection, slot).await?;
            let session = &reached.session;
            if is_asking {
                // The node that the slot moves to may know no marker yet.
                return session.run_asking(script, &call("")).await;
            }
            let answer = match reached.judged().await {
                Ok(Judged::Mark(mark)) => {
                    let (sent, call) = (self.now(), call(&mark.text));
                    let ran = reached.run(&mark, script, &call, false).await?;
                    if has_written(&ran.answer) && !ran.is_doubtful {
                        session.proven(sent.on(ClockKind::Boot));
                    }
                    ran.answer
                }
                // A node that has not got the slot refuses this too, and names the other.
                Ok(Judged::Waits(_)) | Err(Failure::Answered(_) | Failure::Refused(_)) => {
                    session.run(script, &call("")).await?
                }
                Err(failure) => return Err(failure),
            };
            session.served();
            Ok(answer)
        };
        let how = (Purpose::Ask, Passage::Follows);
        self.servers.at(names, key, how, run).await
    }

    /// Reaches the server behind a connection, which is made if there is none.
    pub(super) async fn reach(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        slot: Option<Slot>,
    ) -> Result<Reached, Failure> {
        let session = connection.session().await.map_err(Failure::NotSent)?;
        Ok(Reached {
            client: Arc::clone(self),
            connection,
            session,
            slot,
        })
    }
}

impl Reached {
    /// Runs a script that names the mark over this connection or not at all. If an idle second has
    /// passed, the server is compared with what it was, since it may have been deposed and promoted
    /// again meanwhile: in the same write, or once an answer was so late. `waits`: for the replicas
    /// too.
    pub(super) async fn run(
        &self,
        mark: &Arc<Mark>,
        script: &Script,
        call: &Call,
        waits: bool,
    ) -> Result<Ran, Failure> {
        let session = &self.session;
        let mut sent = self.client.now();
        let was_idle = session.is_idle();
        let mut by_text = false;
        let (noted, run, at) = (
            &self.client.noted,
            session.server.run(),
            sent.on(ClockKind::Boot),
        );
        let mut leaves_notes = noted.lacks(run, self.slot, at);
        let (mut compared, answer, confirmed) = loop {
            let command = if by_text {
                call.by_text(script)
            } else {
                call.by_hash(script)
            };
            let answers = if leaves_notes || was_idle || waits {
                self.ask_with(command, leaves_notes, was_idle, waits)
                    .await?
            } else {
                (None, session.ask(&command).await, None)
            };
            match &answers.1 {
                Err(failure) if failure.is_unknown_script() && !by_text => {
                    // Somebody who removed the scripts has removed the notes too.
                    (by_text, leaves_notes) = (true, true);
                }
                _ => break answers,
            }
        };
        let answer = answer?;
        if leaves_notes {
            noted.left(run, self.slot, at);
        }
        if compared.is_none() && session.is_idle() {
            sent = self.client.now();
            compared = Some(session.ask(&self.compares()).await);
        }
        let is_doubtful = match compared {
            None => false,
            Some(compared) => {
                let is_same = self.is_same(compared, mark).await;
                if is_same {
                    session.proven(sent.on(ClockKind::Boot));
                }
                !is_same
            }
        };
        Ok(Ran {
            answer,
            confirmed,
            is_doubtful,
        })
    }

    /// A script together with what goes before it and after it: the answer to the comparison, that
    /// of the script, and how many replicas have it.
    async fn ask_with(
        &self,
        script: Cmd,
        notes: bool,
        compares: bool,
        waits: bool,
    ) -> Result<(Option<Answer>, Answer, Option<u32>), Failure> {
        let mut all = ::redis::pipe();
        let notes = if notes { self.notes().left } else { Vec::new() };
        for note in &notes {
            all.add_command(note.load());
        }
        if compares {
            all.add_command(self.compares());
        }
        all.add_command(script);
        if waits {
            all.add_command(self.client.options().wait_for_replicas());
        }
        let answers = self.session.ask_all(&all).await?.into_iter();
        let mut answers = answers.skip(notes.len());
        let mut next = || answers.next().map(|answer| answer.map_err(Failure::of));
        let compared = compares.then(&mut next).flatten();
        let answer = next().unwrap_or(Ok(Value::Nil));
        Ok((compared, answer, waits.then(|| confirmed(answers.next()))))
    }
}

/// The text that is a claim, and its place in the line.
pub(super) fn claim_parts(claim: &Claim) -> ([u8; 32], Cow<'static, str>, &str) {
    let mode = match (claim.mode, claim.share) {
        (_, Some(Share { permits, of })) => format!(" s {permits}/{of} ").into(),
        (LockMode::Exclusive, None) => " x ".into(),
        (LockMode::Write, None) => " w ".into(),
        (LockMode::Read, None) => " r ".into(),
    };
    (claim.owner.digits(), mode, claim.label.record())
}
