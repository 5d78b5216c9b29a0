//! One attempt to hold: the script's call, the wait for replicas, and what a quarantine is told as.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::redis::Value;

use super::link::{Failure, Link};
use super::links::Purpose;
use super::preflight::Server;
use super::quarantine::caution;
use super::reply::{self, Answer, Outcome};
use super::script::{ACQUIRE, Call, ENTER, Script};
use super::store::Shared;
use crate::error::{Error, ErrorKind};
use crate::store::{Acquired, Claim, Mode};
use crate::token::FencingToken;

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

/// Which script is asked.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// [`ACQUIRE`]: the lock is free or it is not.
    Plain,
    /// [`ENTER`]: there is an order.
    Queued,
}

impl Way {
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
    fn acquire_call(&self, way: Way, claim: &Claim, server: &Server, want: Want) -> Call {
        let options = self.options();
        let (names, key) = (&options.names, &claim.key);
        let keys = [
            names.lock(key),
            names.counter(key),
            names.marker(),
            names.tombstone(key, &claim.owner),
            names.queue(key),
        ];
        let call = match way {
            Way::Plain => Call::new(keys),
            Way::Queued => Call::new(keys.into_iter().chain([
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
            Mode::Write => call.arg(format!("{}\twrite", claim.label)),
            _ => call.arg(claim.label.as_str()),
        };
        let mut call = call.number(want.floor.map_or(0, FencingToken::number).into());
        if options.quarantine {
            let is_seen = server.run_id.is_some() && self.marker.lock().seen_in == server.run_id;
            let caution = caution(server, options.max_ttl + want.wary, is_seen);
            call = call
                .arg(server.run_id.as_deref().unwrap_or("?"))
                .number(options.max_ttl.as_millis())
                .number(caution.if_other.as_millis())
                .number(caution.if_none.as_millis());
        }
        match way {
            Way::Plain => call,
            Way::Queued => call.arg(claim.mode.to_string()).number(place_millis(claim)),
        }
    }

    /// One attempt, by whichever way the options ask for. A claim that does not queue learns from the first script that
    /// others do.
    pub(super) async fn attempt(&self, claim: &Claim, want: Want) -> Result<Answer, Error> {
        self.check_ttl(claim.ttl)?;
        check_place(claim)?;
        let is_replicated = self.options().replicas > 0;
        let purpose = if is_replicated {
            Purpose::Replicated
        } else {
            Purpose::Ask
        };
        let link = self.links.link(purpose)?;
        let server = link.server().await?;
        let ask = async |way: Way| {
            let call = self.acquire_call(way, claim, &server, want);
            if is_replicated {
                return self.acquire_replicated(claim, way, &call, &link).await;
            }
            let answer = call.run(way.script(), &link).await;
            answer.map_err(|failure| failure.into_error("acquire"))
        };
        let mut answer = ask(Way::of(claim)).await?;
        if reply::is_queued(&answer) {
            answer = ask(Way::Queued).await?;
        }
        let answer = reply::acquired(claim, &answer)?;
        self.note_marker(&server);
        Ok(answer)
    }

    /// What an attempt means for who asked. A server in quarantine may well hold the lock for somebody without knowing: it
    /// is busy.
    pub(super) fn judge(&self, outcome: Outcome) -> Acquired {
        match outcome {
            Outcome::Acquired(acquired) => {
                if self.is_quarantine_told.load(Ordering::Relaxed) {
                    self.is_quarantine_told.store(false, Ordering::Relaxed);
                }
                acquired
            }
            Outcome::Quarantined(left) => {
                self.tell_quarantine(left);
                Acquired::Busy {
                    remaining: Some(left),
                }
            }
        }
    }

    fn note_marker(&self, server: &Server) {
        let mut marker = self.marker.lock();
        if marker.seen_in != server.run_id {
            marker.seen_in.clone_from(&server.run_id);
        }
    }

    fn tell_quarantine(&self, left: Duration) {
        if self.is_quarantine_told.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            "redis at {} grants nothing for another {left:?}: it restarted, was replaced or was flushed, and may have \
             forgotten locks whose leases last up to max_ttl={:?}; restart_quarantine=off in the URL switches this off",
            self.options().address(),
            self.options().max_ttl,
        );
    }

    /// Asks, and waits until the replicas have it.
    async fn acquire_replicated(
        &self,
        claim: &Claim,
        way: Way,
        call: &Call,
        link: &Link,
    ) -> Result<Value, Error> {
        let failed = |failure: Failure| failure.into_error("acquire");
        let options = self.options();
        let ask = async |command| {
            let mut both = ::redis::pipe();
            both.add_command(command);
            both.cmd("WAIT")
                .arg(options.replicas)
                .arg(millis_text(options.replica_wait));
            let answers = link.ask_all(&both).await?;
            let mut answers = answers.into_iter();
            let granted = answers
                .next()
                .unwrap_or(Ok(Value::Nil))
                .map_err(Failure::Refused)?;
            Ok::<_, Failure>((granted, answers.next()))
        };
        let script = way.script();
        let answered = match ask(call.by_hash(script)).await {
            Err(failure) if failure.is_unknown_script() => ask(call.by_text(script)).await,
            answered => answered,
        };
        let (granted, confirmed) = answered.map_err(failed)?;
        let is_grant =
            reply::acquired(claim, &granted).is_ok_and(|answer| answer.outcome.is_grant());
        let confirmed = match confirmed {
            Some(Ok(Value::Int(count))) => u32::try_from(count).unwrap_or(0),
            _ => 0,
        };
        if is_grant && confirmed < options.replicas {
            let kind = match self.withdraw(claim).await {
                Ok(()) => ErrorKind::Unavailable,
                Err(_) => ErrorKind::InDoubt,
            };
            return Err(Error::new(
                kind,
                format!(
                    "too few replicas confirmed the grant, and it was taken back: key={} replicas={} confirmed={confirmed} waited={:?}; mend the replicas",
                    claim.key, options.replicas, options.replica_wait
                ),
            ));
        }
        Ok(granted)
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

fn millis_text(span: Duration) -> String {
    span.as_millis().to_string()
}
