//! One attempt to hold: the script's call, where it is sent, and what its answer means.

use std::time::Duration;

use ::redis::Value;

use super::attempt_route::AttemptRoute;
use super::client::RedisClient;
use super::cluster::Slot;
use super::connection::{Connection, Failure, Purpose, Server, Session};
use super::quarantine::Quarantine;
use super::replicated::acquire_replicated;
use super::reply::{self, Answer, Outcome};
use super::script::{ACQUIRE, Call, ENTER, Script};
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, LockMode};

/// How long the last token of a key is kept. Bounded, since keys come and go; the server's time continues from there.
pub(super) const COUNTER_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// No place is kept for longer: a number that a server can count by.
const MAX_PLACE_TTL: Duration = Duration::from_secs(86_400);
/// How often an attempt is made at a server that has just lost, or may have lost, its data.
const MAX_ATTEMPTS: u32 = 4;

/// What an attempt asks for beyond a grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttemptTerms {
    /// The least token that will do.
    pub(super) floor: Option<FencingToken>,
    /// What is added to a quarantine.
    pub(super) extra_quarantine: Duration,
}

/// One attempt, and where it is made.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    claim: &'a Claim,
    terms: AttemptTerms,
    /// Of the lock; a single server has none.
    slot: Option<Slot>,
    session: &'a Session<'a>,
    /// `None`: the quarantine is switched off.
    quarantine: Option<Quarantine>,
}

/// Which script is run.
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

/// One attempt, by the script that the claim needs, at the server that has the lock.
pub(super) async fn attempt(
    client: &RedisClient,
    claim: &Claim,
    terms: AttemptTerms,
) -> Result<Answer, Error> {
    check_ttl(client, claim.ttl)?;
    check_place(claim)?;
    let options = client.options();
    let purpose = if options.replicas > 0 {
        Purpose::Replicated
    } else {
        Purpose::Ask
    };
    let mut route = AttemptRoute::of(&client.servers, &options.names, &claim.key, purpose);
    loop {
        let answer = match route.connection().await {
            Ok(connection) => attempt_at(client, claim, terms, &route, &connection).await,
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => return Ok(answer),
            Err(failure) => {
                let followed = route.follow(failure).await;
                followed.map_err(|failure| failure.into_error("acquire"))?;
            }
        }
    }
}

/// What an attempt means for the caller. A server in quarantine may hold the lock for somebody without knowing it, so it
/// counts as busy.
pub(super) fn judge(outcome: Outcome) -> Acquired {
    match outcome {
        Outcome::Acquired(acquired) => acquired,
        Outcome::Quarantined(left) => Acquired::Busy {
            remaining: Some(left),
        },
    }
}

/// An attempt at one server. A claim that does not queue learns from the first script that others do.
async fn attempt_at(
    client: &RedisClient,
    claim: &Claim,
    terms: AttemptTerms,
    route: &AttemptRoute<'_>,
    connection: &Connection,
) -> Result<Answer, Failure> {
    let (options, slot) = (client.options(), route.slot());
    for _ in 0..MAX_ATTEMPTS {
        let session = connection.session().await.map_err(Failure::NotSent)?;
        let quarantine = if options.quarantine {
            check_run(client, slot, session.server(), connection)?;
            let max_ttl = options.max_ttl + terms.extra_quarantine;
            let is_missed = (client.markers).is_missed(slot, session.server(), connection);
            let same_for = route.same_for(&session, &options.names, max_ttl).await;
            let (server, uptime) = (session.server(), session.uptime(max_ttl));
            let mut quarantine = Quarantine::of(server, uptime, max_ttl, is_missed, same_for);
            // Its data, marker included, may be those of the server that it replaced.
            quarantine.is_durable &= !may_be_replaced(client, slot);
            Some(quarantine)
        } else {
            None
        };
        let attempt = Attempt {
            claim,
            terms,
            slot,
            session: &session,
            quarantine,
        };
        let mut answer = ask(client, Ask::of(claim), &attempt).await?;
        if reply::is(&answer, "queued") {
            answer = ask(client, Ask::Queued, &attempt).await?;
        }
        if reply::is(&answer, "outdated") {
            session.give_up();
            continue;
        }
        let answer = reply::acquired(claim, &answer).map_err(Failure::Answered)?;
        if answer.is_marker_seen {
            client.markers.note(slot, session.server(), connection);
        }
        log_quarantine(client, slot, &answer.outcome, connection);
        return Ok(answer);
    }
    Err(Failure::Answered(Error::unavailable(format!(
        "redis is flushed or replaced again and again: address={}; try later",
        connection.address()
    ))))
}

async fn ask(client: &RedisClient, ask: Ask, attempt: &Attempt<'_>) -> Result<Value, Failure> {
    let call = acquire_call(client, ask, attempt);
    let (script, session) = (ask.script(), attempt.session);
    if client.options().replicas > 0 {
        return acquire_replicated(client, attempt.claim, script, &call, session).await;
    }
    call.run_in(script, session).await
}

/// The keys and arguments of a script that acquires: [`ACQUIRE`] and [`ENTER`] begin with the same.
fn acquire_call(client: &RedisClient, ask: Ask, attempt: &Attempt<'_>) -> Call {
    let options = client.options();
    let (names, claim, terms) = (&options.names, attempt.claim, attempt.terms);
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
    // The record of the newest grant says whether a writer has it. No label has a tab.
    let call = match claim.mode {
        LockMode::Write => call.arg(format!("{}\twrite", claim.label)),
        _ => call.arg(claim.label.as_str()),
    };
    let mut call = call.number(terms.floor.map_or(0, FencingToken::number).into());
    if let Some(quarantine) = attempt.quarantine {
        let server = attempt.session.server();
        call = call
            .arg(server.incarnation.as_deref().unwrap_or("?"))
            .number(options.max_ttl.as_millis())
            .written(format_args!(
                "{} {} {} {}",
                quarantine.if_other.as_millis(),
                quarantine.if_none.as_millis(),
                u8::from(quarantine.is_durable),
                server.account
            ));
    }
    match ask {
        Ask::Plain => call,
        Ask::Queued => call.arg(claim.mode.to_string()).number(place_millis(claim)),
    }
}

fn check_ttl(client: &RedisClient, ttl: Duration) -> Result<(), Error> {
    let most = client.options().max_ttl;
    if ttl >= Duration::from_millis(1) && ttl <= most {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "ttl={ttl:?} is out of range; ask for 1ms to max_ttl={most:?}, or set max_ttl for all clients of this prefix"
    )))
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

/// For how long a claim that must wait keeps a place: a whole number, and 0 only for none at all.
fn place_millis(claim: &Claim) -> u128 {
    if !claim.queues() || claim.place_ttl.is_zero() {
        return 0;
    }
    claim.place_ttl.as_millis().max(1)
}

/// A quarantine is judged by the server's run. Where another server may replace it, nothing is granted without the run.
fn check_run(
    client: &RedisClient,
    slot: Option<Slot>,
    server: &Server,
    connection: &Connection,
) -> Result<(), Failure> {
    if server.run_id.is_some() {
        return Ok(());
    }
    let address = connection.address();
    if may_be_replaced(client, slot) {
        return Err(Failure::Answered(Error::denied(format!(
            "this redis does not report its run, so another could replace it unnoticed: address={address}; allow INFO (+info in the access list), or set restart_quarantine=off in the URL"
        ))));
    }
    if client.markers.is_hidden_run_news() {
        tracing::warn!(
            "redis at {address} does not report its run: a restart that keeps old data is not noticed, and two may hold after it; \
             allow INFO (+info in the access list); restart_quarantine=off in the URL switches this warning off, and the \
             quarantine too",
        );
    }
    Ok(())
}

/// Whether another server replaces this one when it is gone.
fn may_be_replaced(client: &RedisClient, slot: Option<Slot>) -> bool {
    slot.is_some() || client.options().is_behind_sentinels()
}

/// Once for each quarantine.
fn log_quarantine(
    client: &RedisClient,
    slot: Option<Slot>,
    outcome: &Outcome,
    connection: &Connection,
) {
    let left = match outcome {
        Outcome::Quarantined(left) => Some(*left),
        Outcome::Acquired(_) => None,
    };
    let is_news = client.markers.is_news(slot, left.is_some());
    if let Some(left) = left.filter(|_| is_news) {
        tracing::warn!(
            "redis at {} grants nothing for another {left:?}: it restarted, was replaced or was flushed, and may have \
             forgotten locks whose leases last up to max_ttl={:?}; restart_quarantine=off in the URL switches this off",
            connection.address(),
            client.options().max_ttl,
        );
    }
}
