//! Judging a server before its first grant: a server that may have forgotten locks grants nothing
//! until the last of them has ended by the clocks of their holders, which is at most `max_ttl`
//! later.
//!
//! `judge.lua` decides, and alone writes the marker. The text of the marker is the *mark*, which a
//! connection knows once its server was judged. Each script that grants compares it. The [page of
//! the protocol](super::PROTOCOL) says why that is enough.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::redis::{Cmd, Value};

use super::client::RedisClient;
use super::cluster::Slot;
use super::connection::{Connection, Failure, Session};
use super::fault::unexpected_reply;
use super::mark::Mark;
use super::names::Names;
use super::notes::Notes;
use super::reply::{millis, text};
use super::script::{Call, JUDGE};
use crate::clock::{ClockKind, Stamp};
use crate::model::error::Error;
use crate::model::span::in_millis;

/// The version of what the keys of a prefix mean. The marker names it, and `judge.lua`.
pub(super) const PROTOCOL: u32 = 4;

/// How often a client asks again that finds a marker which another has just written, and opens if
/// the server is old enough. That takes the other one more request, in a cluster three.
const OPENING_TRIES: u32 = 8;
/// What it waits for then before its next attempt.
const OPENING_PAUSE: Duration = Duration::from_millis(50);

/// What a server is for grants.
#[derive(Debug)]
pub(super) enum Judged {
    Mark(Arc<Mark>),
    /// It grants nothing for so long.
    Waits(Duration),
}

/// What `judge.lua` answers.
enum Judgement {
    Mark(Mark),
    /// With the marker, which says until when.
    Waits(Duration, String),
    /// It waits, and another client wrote the marker just now.
    Closed(Duration),
    /// It waits, and there was no marker before this one.
    New(Duration, String),
    /// It is no master any more.
    Replica,
}

/// A connection to the server that has a slot (`None`: the only server).
#[derive(Clone)]
pub(super) struct Reached {
    pub(super) client: Arc<RedisClient>,
    pub(super) connection: Arc<Connection>,
    pub(super) session: Arc<Session>,
    pub(super) slot: Option<Slot>,
}

impl Reached {
    /// The mark of the server, which is judged if this connection does not know it.
    pub(super) async fn judged(&self) -> Result<Judged, Failure> {
        if let Some(mark) = self.session.mark(self.slot) {
            return Ok(Judged::Mark(mark));
        }
        // In a task of its own: everybody would wait for a marker that a caller wrote closed, and
        // was dropped before it opened it.
        let reached = self.clone();
        let judging = tokio::spawn(async move { reached.judge().await });
        judging.await.unwrap_or_else(|_| {
            Err(Failure::NotSent(Error::unavailable(
                "the runtime that had redis judged ended; try again",
            )))
        })
    }

    async fn judge(&self) -> Result<Judged, Failure> {
        // One after the other: those that come second would find the marker of a new prefix before
        // it is opened.
        let _turn = self.session.judging.lock().await;
        if let Some(mark) = self.session.mark(self.slot) {
            return Ok(Judged::Mark(mark));
        }
        let sent = self.client.now();
        let Notes { sought, left } = self.notes();
        let mut all = ::redis::pipe();
        // A server may read one write in parts, with a first use and a flush in between. So the
        // notes are looked for after the marker is written: whoever came before that has left some,
        // and a marker that is flushed after it opens nothing.
        all.add_command(self.call("").by_text(&JUDGE));
        all.cmd("SCRIPT").arg("EXISTS");
        for note in &sought {
            all.arg(note.hash());
        }
        for note in &left {
            all.add_command(note.load());
        }
        let mut answers = self.session.ask_all(&all).await?.into_iter();
        let unexpected = || Failure::Answered(unexpected_reply("judge the server"));
        let verdict = answers.next().ok_or_else(unexpected)?;
        let known = answers.next().ok_or_else(unexpected)?;
        let mut verdict = self.verdict(verdict.map_err(Failure::of)?)?;
        let is_noted = known != Ok(Value::Array(vec![Value::Int(0); sought.len()]));
        if self.client.options().quarantine {
            // Whoever leaves no note would not be waited for.
            let refused = [known].into_iter().chain(answers).find_map(Result::err);
            refused.map_or(Ok(()), |refused| Err(Failure::of(refused)))?;
        }
        let was_judged = self.client.judged.lock().contains(&self.slot);
        if !is_noted && !was_judged {
            // Only a marker that was written just now: another may be of a flush that another
            // client has noticed.
            if let Judgement::New(_, mark) = &verdict {
                verdict = self.asked(mark).await?;
                if let Judgement::Waits(_, mark) = &verdict
                    && self.is_known_for_long().await
                {
                    verdict = self.asked(mark).await?;
                }
            }
        }
        for _ in 0..OPENING_TRIES {
            let Judgement::Closed(_) = verdict else { break };
            verdict = self.asked("").await?;
        }
        let at = sent.on(ClockKind::Boot);
        self.client
            .noted
            .left(self.session.server.run(), self.slot, at);
        self.session.proven(at);
        self.settle(verdict)
    }

    /// Asks for the age of a server at which nobody has used the prefix, or the slot, before this
    /// marker.
    async fn asked(&self, mark: &str) -> Result<Judgement, Failure> {
        let opens = self.call(mark).by_text(&JUDGE);
        self.verdict(self.session.ask(&opens).await?)
    }

    /// Whether a node of a cluster has been what it is for long enough, by what any client has
    /// found. A node that was promoted does not say when, and each of its slots that is used for
    /// the first time would be waited for. So the first slot of the node has a marker too: if that
    /// names this server, and its wait is over, the wait of all slots is.
    async fn is_known_for_long(&self) -> bool {
        let Some(slot) = (self.slot).and_then(|slot| self.client.servers.first_beside(slot)) else {
            return false;
        };
        let first = Self {
            slot: Some(slot),
            ..self.clone()
        };
        let call = first.call("").by_text(&JUDGE);
        let verdict = match self.session.ask(&call).await {
            Ok(answer) => first.verdict(answer),
            Err(failure) => Err(failure),
        };
        let Ok(Judgement::Mark(mark)) = verdict else {
            return false;
        };
        let id = mark.text.split(' ').nth(1).unwrap_or_default();
        self.connection.target.was_seen_for(id, self.client.wait());
        true
    }

    /// The command by which a connection that was idle compares its server with what it was.
    pub(super) fn compares(&self) -> Cmd {
        self.call("").by_hash(&JUDGE)
    }

    /// Whether a server that was [compared](Self::compares) is what it was. One that cannot be
    /// compared may be another.
    pub(super) async fn is_same(&self, compared: Result<Value, Failure>, mark: &Arc<Mark>) -> bool {
        let compared = match compared {
            // Afterwards is as good: an id that is the same now was never another.
            Err(failure) if failure.is_unknown_script() => {
                self.session.ask(&self.call("").by_text(&JUDGE)).await
            }
            compared => compared,
        };
        let verdict = compared.and_then(|answer| self.verdict(answer));
        let is_same = matches!(&verdict, Ok(Judgement::Mark(now)) if now.text == mark.text);
        if !is_same {
            self.session.forget(self.slot, mark);
        }
        if let Ok(Judgement::Replica) = verdict {
            self.connection.outdated(&self.session);
        }
        is_same
    }

    fn settle(&self, verdict: Judgement) -> Result<Judged, Failure> {
        let (client, address) = (&self.client, self.connection.address());
        let left = match verdict {
            Judgement::Mark(mark) => {
                client.is_wait_logged.store(false, Ordering::Relaxed);
                client.judged.lock().insert(self.slot);
                let mark = Arc::new(mark);
                self.session.learn(self.slot, Arc::clone(&mark));
                return Ok(Judged::Mark(mark));
            }
            Judgement::Replica => {
                let error = self.connection.outdated(&self.session);
                return Err(Failure::Answered(error));
            }
            Judgement::Closed(left) => return Ok(Judged::Waits(left.min(OPENING_PAUSE))),
            Judgement::Waits(left, _) | Judgement::New(left, _) => left,
        };
        if !client.is_wait_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "leasehold::redis", "redis at {address} grants nothing for another {:?}: it restarted, was replaced or was flushed, and may have \
                 forgotten locks whose leases last up to max_ttl={:?}; restart_quarantine=off in the URL switches this off",
                in_millis(left),
                client.options().max_ttl,
            );
        }
        Ok(Judged::Waits(left))
    }

    pub(super) fn notes(&self) -> Notes {
        Notes::of(self.client.options(), self.slot, &self.session.server)
    }

    /// `fresh`: the marker that this client has just written where none was, at a server without
    /// the note.
    fn call(&self, fresh: &str) -> Call {
        let (options, server) = (self.client.options(), &self.session.server);
        let id = server.id.as_deref().unwrap_or("?");
        let known_for = self.connection.target.seen_for(id);
        Call::new([
            options.names.marker(self.slot),
            options.names.token(self.slot),
        ])
        .number(options.max_ttl.as_millis())
        .number(self.client.wait().as_millis())
        .number((!options.quarantine).into())
        .arg(fresh)
        .number(server.backlog.as_millis())
        .written(format_args!("{id} {}", known_for.as_millis()))
        .number(self.slot.is_some().into())
        .written(format_args!("{}", options.database()))
    }

    fn verdict(&self, answer: Value) -> Result<Judgement, Failure> {
        let names = &self.client.options().names;
        verdict(names, self.slot, &answer, self.client.now()).map_err(Failure::Answered)
    }
}

/// Reads the answer of `judge.lua`.
fn verdict(
    names: &Names,
    slot: Option<Slot>,
    answer: &Value,
    now: Stamp,
) -> Result<Judgement, Error> {
    let unexpected = || unexpected_reply("judge the server");
    let (marker, token) = (names.marker(slot), names.token(slot));
    let answer = text(answer).ok_or_else(unexpected)?;
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    let numbered = || {
        let (number, mark) = rest.split_once(' ').ok_or_else(unexpected)?;
        let number: i64 = number.parse().map_err(|_| unexpected())?;
        Ok::<_, Error>((number, mark.to_owned()))
    };
    match word {
        "mark" => {
            let (micros, mark) = numbered()?;
            let micros = u64::try_from(micros).map_err(|_| unexpected())?;
            Ok(Judgement::Mark(Mark::new(mark, micros, now)))
        }
        "wait" | "closed" | "new" => {
            let (left, mark) = numbered()?;
            let left = millis(left).ok_or_else(unexpected)?;
            Ok(match word {
                "new" => Judgement::New(left, mark),
                "closed" => Judgement::Closed(left),
                _ => Judgement::Waits(left, mark),
            })
        }
        "replica" => Ok(Judgement::Replica),
        "ttl" => Err(Error::invalid(format!(
            "the clients of this prefix agreed on another max_ttl: theirs={rest}ms; use the same, or stop all of them and delete the key {marker} (in a cluster, every key that ends in :leasehold:marker)"
        ))),
        "version" => {
            let theirs = rest.split(' ').next().unwrap_or_default();
            let theirs = theirs.trim_start_matches('v');
            Err(Error::unsupported(format!(
                "the clients of this prefix use another version of the protocol: theirs={theirs} ours={PROTOCOL}; run one version: stop the others, let max_ttl pass, then delete the key {marker} (in a cluster, every key that ends in :leasehold:marker)"
            )))
        }
        "hidden" => Err(Error::unsupported(
            "this redis does not say which run of it this is, and so cannot show that it has forgotten nothing: INFO has no run_id or no master_replid; use another server, or switch the check off with restart_quarantine=off in the URL",
        )),
        "foreign" => Err(Error::corrupt(format!(
            "a key of the prefix holds a value that is not ours: it is {marker} or {token}; both were left as they are, check them"
        ))),
        _ => Err(unexpected()),
    }
}
