//! One attempt to hold: the script's call, the wait for replicas, and what a quarantine is told as.

use std::time::Duration;

use ::redis::Value;

use super::cluster::Slot;
use super::link::{Failure, Link};
use super::links::Purpose;
use super::preflight::Server;
use super::quarantine::{Caution, caution};
use super::renew::confirmed;
use super::reply::{self, Answer, Outcome};
use super::script::{ACQUIRE, Call, ENTER, Script};
use super::servers::Way;
use super::session::Session;
use super::store::Shared;
use crate::model::error::{Error, ErrorKind};
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, LockMode};

/// No place is kept for longer: a number that a server can count by.
const MAX_PLACE_TTL: Duration = Duration::from_secs(86_400);

/// What an attempt asks for beyond a grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Want {
    /// The least token that will do.
    pub(super) floor: Option<FencingToken>,
    /// What is added to a quarantine.
    pub(super) wary: Duration,
}

/// One attempt, and where it is made.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    claim: &'a Claim,
    want: Want,
    /// Of the lock; a single server has none.
    slot: Option<Slot>,
    session: &'a Session<'a>,
    /// `None`: the quarantine is switched off.
    caution: Option<Caution>,
}

/// How often an attempt is made of a server that has just lost, or may have lost, what it had.
const MOST_ASKINGS: u32 = 4;

/// Which script is asked.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// [`ACQUIRE`]: the lock is free or it is not.
    Plain,
    /// [`ENTER`]: there is an order.
    Queued,
}

impl Ask {
    fn of(claim: &Claim) -> Self {
        if claim.queues() {
            Self::Queued
        } else {
            Self::Plain
        }
    }

    fn script(self) -> &'static Script {
        match self {
            Self::Plain => &ACQUIRE,
            Self::Queued => &ENTER,
        }
    }
}

impl Shared {
    fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        let most = self.options().max_ttl;
        if ttl >= Duration::from_millis(1) && ttl <= most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "ttl={ttl:?} is out of range; ask for 1ms to max_ttl={most:?}, or set max_ttl for all clients of this prefix"
        )))
    }

    /// The keys and arguments of a script that asks: [`ACQUIRE`] and [`ENTER`] begin with the same.
    fn acquire_call(&self, ask: Ask, attempt: &Attempt<'_>) -> Call {
        let options = self.options();
        let (names, claim, want) = (&options.names, attempt.claim, attempt.want);
        let key = &claim.key;
        let keys = [
            names.lock(key),
            names.counter(key),
            names.marker(attempt.slot),
            names.tombstone(key, &claim.owner),
            names.queue(key),
        ];
        let call = match ask {
            Ask::Plain => Call::new(keys),
            Ask::Queued => Call::new(keys.into_iter().chain([
                names.alone(key),
                names.places(key),
                names.readers(key),
                names.grants(key),
                names.entering(key),
            ])),
        };
        let call = call.arg(claim.owner.expose()).number(claim.ttl.as_millis());
        // The record of the newest grant tells whether a writer has it. No label has a tab.
        let call = match claim.mode {
            LockMode::Write => call.arg(format!("{}\twrite", claim.label)),
            _ => call.arg(claim.label.as_str()),
        };
        let mut call = call.number(want.floor.map_or(0, FencingToken::number).into());
        if let Some(caution) = attempt.caution {
            let server = attempt.session.server();
            call = call
                .arg(server.reign.as_deref().unwrap_or("?"))
                .number(options.max_ttl.as_millis())
                .written(format_args!(
                    "{} {} {} {}",
                    caution.if_other.as_millis(),
                    caution.if_none.as_millis(),
                    u8::from(caution.is_durable),
                    server.account
                ));
        }
        match ask {
            Ask::Plain => call,
            Ask::Queued => call.arg(claim.mode.to_string()).number(place_millis(claim)),
        }
    }

    /// One attempt, by whichever script the claim needs, at whichever server has the lock.
    pub(super) async fn attempt(&self, claim: &Claim, want: Want) -> Result<Answer, Error> {
        self.check_ttl(claim.ttl)?;
        check_place(claim)?;
        let purpose = if self.options().replicas > 0 {
            Purpose::Replicated
        } else {
            Purpose::Ask
        };
        let mut way = self.servers.way(&self.options().names, &claim.key, purpose);
        loop {
            let answer = match way.link().await {
                Ok(link) => self.attempt_at(claim, want, &way, &link).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    let followed = way.follow(failure).await;
                    followed.map_err(|failure| failure.into_error("acquire"))?;
                }
            }
        }
    }

    /// An attempt of one server. A claim that does not queue learns from the first script that others do.
    async fn attempt_at(
        &self,
        claim: &Claim,
        want: Want,
        way: &Way<'_>,
        link: &Link,
    ) -> Result<Answer, Failure> {
        let (options, slot) = (self.options(), way.slot());
        for _ in 0..MOST_ASKINGS {
            let session = link.session().await.map_err(Failure::NotSent)?;
            let caution = if options.quarantine {
                self.check_run(slot, session.server(), link)?;
                let max_ttl = options.max_ttl + want.wary;
                let is_missed = self.marks.is_missed(slot, session.server(), link);
                let same_for = way.same_for(&session, &options.names, max_ttl).await;
                let mut caution = caution(session.server(), max_ttl, is_missed, same_for);
                // Its data, marker included, may be those of the server whose place it took.
                caution.is_durable &= !self.may_be_replaced(slot);
                Some(caution)
            } else {
                None
            };
            let attempt = Attempt {
                claim,
                want,
                slot,
                session: &session,
                caution,
            };
            let mut answer = self.ask(Ask::of(claim), &attempt).await?;
            if reply::is(&answer, "queued") {
                answer = self.ask(Ask::Queued, &attempt).await?;
            }
            if reply::is(&answer, "outdated") {
                session.give_up();
                continue;
            }
            let answer = reply::acquired(claim, &answer).map_err(Failure::Answered)?;
            self.marks.note(slot, session.server(), link);
            self.tell_quarantine(slot, &answer.outcome, link);
            return Ok(answer);
        }
        Err(Failure::Answered(Error::unavailable(format!(
            "redis is flushed or replaced over and over: address={}; try later",
            link.address()
        ))))
    }

    /// A quarantine goes by the server's run. Where another server may come in its place, nothing is granted without it.
    fn check_run(&self, slot: Option<Slot>, server: &Server, link: &Link) -> Result<(), Failure> {
        if server.run_id.is_some() {
            return Ok(());
        }
        let address = link.address();
        if self.may_be_replaced(slot) {
            return Err(Failure::Answered(Error::denied(format!(
                "this redis does not tell its run, so that another could take its place unseen: address={address}; allow INFO (+info in the access list), or set restart_quarantine=off in the URL"
            ))));
        }
        if self.marks.is_hidden_run_news() {
            tracing::warn!(
                "redis at {address} does not tell its run: a restart that keeps old data is not noticed, and two may hold after it; \
                 allow INFO (+info in the access list); restart_quarantine=off in the URL switches this warning off, and the \
                 quarantine too",
            );
        }
        Ok(())
    }

    /// Whether another server takes the place of ours when it is gone.
    fn may_be_replaced(&self, slot: Option<Slot>) -> bool {
        slot.is_some() || self.options().is_behind_sentinels()
    }

    async fn ask(&self, ask: Ask, attempt: &Attempt<'_>) -> Result<Value, Failure> {
        let call = self.acquire_call(ask, attempt);
        if self.options().replicas > 0 {
            return self
                .acquire_replicated(attempt.claim, ask.script(), &call, attempt.session)
                .await;
        }
        call.run_in(ask.script(), attempt.session).await
    }

    /// What an attempt means for who asked. A server in quarantine may well hold the lock for somebody without knowing: it
    /// is busy.
    pub(super) fn judge(outcome: Outcome) -> Acquired {
        match outcome {
            Outcome::Acquired(acquired) => acquired,
            Outcome::Quarantined(left) => Acquired::Busy {
                remaining: Some(left),
            },
        }
    }

    /// Once for each quarantine.
    fn tell_quarantine(&self, slot: Option<Slot>, outcome: &Outcome, link: &Link) {
        let left = match outcome {
            Outcome::Quarantined(left) => Some(*left),
            Outcome::Acquired(_) => None,
        };
        let is_news = self.marks.is_news(slot, left.is_some());
        if let Some(left) = left.filter(|_| is_news) {
            tracing::warn!(
                "redis at {} grants nothing for another {left:?}: it restarted, was replaced or was flushed, and may have \
                 forgotten locks whose leases last up to max_ttl={:?}; restart_quarantine=off in the URL switches this off",
                link.address(),
                self.options().max_ttl,
            );
        }
    }

    /// Asks, and waits until the replicas have it.
    async fn acquire_replicated(
        &self,
        claim: &Claim,
        script: &Script,
        call: &Call,
        session: &Session<'_>,
    ) -> Result<Value, Failure> {
        let options = self.options();
        let ask = async |command| {
            let mut both = ::redis::pipe();
            both.add_command(command);
            both.add_command(options.wait_for_replicas());
            let answers = session.ask_all(&both).await?;
            let mut answers = answers.into_iter();
            let granted = answers
                .next()
                .unwrap_or(Ok(Value::Nil))
                .map_err(Failure::of)?;
            Ok::<_, Failure>((granted, answers.next()))
        };
        let answered = match ask(call.by_hash(script)).await {
            Err(failure) if failure.is_unknown_script() => ask(call.by_text(script)).await,
            answered => answered,
        };
        let (granted, waited) = answered?;
        let is_grant =
            reply::acquired(claim, &granted).is_ok_and(|answer| answer.outcome.is_grant());
        let confirmed = confirmed(waited);
        if is_grant && confirmed < options.replicas {
            return Err(Failure::Answered(self.unconfirmed(claim, confirmed).await));
        }
        Ok(granted)
    }

    /// What becomes of a grant that too few replicas confirmed.
    ///
    /// A claim that queues is asked again, so as to keep its place, and may be confirmed then: it is left as it is, in doubt, and
    /// withdrawn by who gives up. Were it released here, a release that arrives late would end the grant of the next asking.
    async fn unconfirmed(&self, claim: &Claim, confirmed: u32) -> Error {
        let options = self.options();
        let (kind, so) = if claim.queues() {
            (
                ErrorKind::InDoubt,
                "ask again with the same claim, or withdraw it",
            )
        } else {
            match self.withdraw(claim).await {
                Ok(()) => (ErrorKind::Unavailable, "it was taken back"),
                Err(_) => (ErrorKind::InDoubt, "it could not be taken back"),
            }
        };
        Error::new(
            kind,
            format!(
                "too few replicas confirmed the grant: key={} replicas={} confirmed={confirmed} waited={:?}; {so}, and mend the replicas",
                claim.key, options.replicas, options.replica_wait
            ),
        )
    }
}

fn check_place(claim: &Claim) -> Result<(), Error> {
    if claim.place_ttl <= MAX_PLACE_TTL {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "place_ttl={:?} is out of range; keep a place for up to {MAX_PLACE_TTL:?}",
        claim.place_ttl
    )))
}

/// For how long a claim that is told to wait keeps a place: a whole number, and 0 only for none at all.
fn place_millis(claim: &Claim) -> u128 {
    if !claim.queues() || claim.place_ttl.is_zero() {
        return 0;
    }
    claim.place_ttl.as_millis().max(1)
}
