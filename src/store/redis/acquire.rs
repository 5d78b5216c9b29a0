//! One attempt to hold: the script's call, where it is sent, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};

use super::arm::{Judged, judge_server};
use super::attempt_route::AttemptRoute;
use super::client::RedisClient;
use super::cluster::Slot;
use super::connection::{Connection, Failure, Session};
use super::counters::Counter;
use super::replicated::acquire_replicated;
use super::reply::{self, Answer, Attempted, Outcome};
use super::script::{Call, GrantScripts, Script};
use super::waiting::{Asked, handover_millis};
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, LockMode};

/// No place is kept for longer: a number that a server can count by.
const MAX_PLACE_TTL: Duration = Duration::from_secs(86_400);
/// How often an attempt is made at a server whose counter of tokens is gone each time.
const MAX_ATTEMPTS: u32 = 8;

/// What an attempt asks for beyond a grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttemptTerms {
    /// Whether it is a member's vote, which needs the server's time.
    pub(super) is_vote: bool,
    /// The least token that will do, for a vote.
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
}

/// Which script is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    /// The lock is free or it is not.
    Plain,
    /// There is an order.
    Queued,
}

impl Ask {
    /// A claim that listens waits, or other claims of this process did a moment ago: the lock is hardly free.
    fn of(client: &RedisClient, attempt: &Attempt<'_>) -> Self {
        let claim = attempt.claim;
        let has_order = claim.mode != LockMode::Exclusive || place_millis(attempt) > 0;
        if has_order || listens(client, claim) {
            Self::Queued
        } else {
            Self::Plain
        }
    }

    fn script(self, scripts: &GrantScripts) -> &Script {
        match self {
            Self::Plain => &scripts.attempt,
            Self::Queued => &scripts.enter,
        }
    }
}

/// Whether a message for the claim would be heard.
fn listens(client: &RedisClient, claim: &Claim) -> bool {
    let subscribed = client.subscriptions_of(claim);
    subscribed.is_some_and(|subscribed| subscribed.is_waiting(&claim.owner))
}

/// One attempt, by the script that the claim needs, at the server that has the lock.
pub(super) async fn attempt(
    client: &RedisClient,
    claim: &Claim,
    terms: AttemptTerms,
) -> Result<Answer, Error> {
    check_ttl(client, claim.ttl)?;
    check_place(claim)?;
    client.counters.ensure_open(claim, terms.is_vote)?;
    let (names, purpose) = (&client.options().names, client.attempt_purpose());
    let mut route = AttemptRoute::of(&client.servers, names, &claim.key, purpose);
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

/// What an attempt means for the caller.
pub(super) fn judge(outcome: Outcome) -> Acquired {
    match outcome {
        Outcome::Acquired(acquired) => acquired,
        Outcome::Quarantined(retry_after) => Acquired::NotReady { retry_after },
    }
}

/// An attempt at one server, which is judged first if its counter of tokens is not known. A claim without a place may learn
/// from the first script that others wait.
async fn attempt_at(
    client: &RedisClient,
    claim: &Claim,
    terms: AttemptTerms,
    route: &AttemptRoute<'_>,
    connection: &Connection,
) -> Result<Answer, Failure> {
    let slot = route.slot();
    let mut was_outdated = false;
    for _ in 0..MAX_ATTEMPTS {
        let session = connection.session().await.map_err(Failure::NotSent)?;
        let attempt = Attempt {
            claim,
            terms,
            slot,
            session: &session,
        };
        let extra = terms.extra_quarantine;
        let counter = match judge_server(client, route, &session, connection, extra).await? {
            Judged::Counter(counter) => counter,
            Judged::Quarantined(answer) => {
                take_place(client, &attempt).await?;
                return Ok(answer);
            }
            // Once: a server that changed a moment ago. A connection of its own each time would be a flood.
            Judged::Outdated(error) if was_outdated => return Err(Failure::Answered(error)),
            Judged::Outdated(_) => {
                was_outdated = true;
                continue;
            }
        };
        let first = Ask::of(client, &attempt);
        let mut answer = ask(client, first, &attempt, &counter).await?;
        if first == Ask::Plain && matches!(answer, Attempted::Queued) {
            answer = ask(client, Ask::Queued, &attempt, &counter).await?;
        }
        if matches!(answer, Attempted::Slow) {
            client.counters.forget(slot, &counter);
            continue;
        }
        session.served();
        return answer.answer(claim).map_err(Failure::Answered);
    }
    Err(Failure::Answered(Error::unavailable(format!(
        "redis is flushed or replaced again and again, or many claims are withdrawn: address={}; try later",
        connection.address()
    ))))
}

/// In a quarantine a claim keeps its place, and nothing is granted.
async fn take_place(client: &RedisClient, attempt: &Attempt<'_>) -> Result<(), Failure> {
    if place_millis(attempt) == 0 {
        return Ok(());
    }
    let incarnation = attempt.session.server().incarnation_or_hidden();
    let scripts = client.counters.scripts(incarnation);
    let call = acquire_call(client, Ask::Queued, attempt, "", None);
    run_verified(client, Ask::Queued, attempt, &scripts, &call, "").await?;
    Ok(())
}

async fn ask(
    client: &RedisClient,
    ask: Ask,
    attempt: &Attempt<'_>,
    counter: &Arc<Counter>,
) -> Result<Attempted, Failure> {
    let is_vote = attempt.terms.is_vote;
    let request = client.counters.request(attempt.claim, is_vote, counter);
    let request = request.map_err(Failure::Answered)?;
    let (asked_at, sent_at) = (Some(request.server_millis), request.sent_at);
    let call = acquire_call(client, ask, attempt, &counter.name, asked_at);
    let answer = run_verified(client, ask, attempt, &counter.scripts, &call, &counter.name).await;
    if !matches!(answer, Err(Failure::Unanswered(_))) {
        request.answered();
    }
    let answer = reply::attempted(&answer?).map_err(Failure::Answered);
    if ask == Ask::Queued || !matches!(answer, Ok(Attempted::Busy { .. })) {
        note(client, attempt, &answer, sent_at, counter);
    }
    answer
}

/// Runs a script that grants over this connection or not at all. A server that does not know its text learns it only if it is the
/// incarnation for which the text was made; otherwise the answer is `slow`.
async fn run_verified(
    client: &RedisClient,
    ask: Ask,
    attempt: &Attempt<'_>,
    scripts: &GrantScripts,
    call: &Call,
    counter: &str,
) -> Result<Value, Failure> {
    let (script, session) = (ask.script(scripts), attempt.session);
    let run = async |command: Cmd| {
        // In a quarantine nothing is granted, so no replica has to have it.
        if client.options().replicas > 0 && !counter.is_empty() {
            acquire_replicated(client, attempt.claim, &command, session).await
        } else {
            session.ask(&command).await
        }
    };
    let copies_scripts = session.server().copies_scripts;
    let verified = copies_scripts.then(|| call.clone().verified());
    let call = verified.as_ref().unwrap_or(call);
    let answer = run(call.by_hash(script)).await;
    if !matches!(&answer, Err(failure) if failure.is_unknown_script()) {
        return answer;
    }
    let tokens = client.options().names.tokens(attempt.slot);
    if !scripts.fit(session, &tokens, counter).await? {
        return Ok(Value::SimpleString("slow".to_owned()));
    }
    run(call.by_verified_text(script)).await
}

/// Remembers when a claim that has to wait was answered, so that a message may prove a grant. Once it is granted, no message says so
/// again.
fn note(
    client: &RedisClient,
    attempt: &Attempt<'_>,
    answer: &Result<Attempted, Failure>,
    sent_at: Stamp,
    counter: &Arc<Counter>,
) {
    let owner = attempt.claim.owner;
    match *answer {
        Ok(Attempted::Busy {
            micros,
            last: Some(last),
            ..
        }) if may_be_granted_by_message(client, attempt) => {
            let asked = Asked {
                sent_at,
                micros,
                last,
                counter: Arc::clone(counter),
            };
            client.asked.note(owner, asked, &sent_at);
        }
        _ => client.asked.forget(&owner),
    }
}

/// Whether the one that ends the hold before may grant to this claim. A reader is granted together with others. Replicas, and a
/// quorum, have to answer. The nodes of a cluster are known to an attempt only. A server that hides its run may be another.
fn may_be_granted_by_message(client: &RedisClient, attempt: &Attempt<'_>) -> bool {
    attempt.claim.mode != LockMode::Read
        && place_millis(attempt) > 0
        && client.options().replicas == 0
        && attempt.slot.is_none()
        && attempt.session.server().run_id.is_some()
}

/// The keys and arguments of a script that grants. `asked_at`: about the server's time, in milliseconds.
fn acquire_call(
    client: &RedisClient,
    ask: Ask,
    attempt: &Attempt<'_>,
    counter: &str,
    asked_at: Option<u128>,
) -> Call {
    let (names, claim) = (&client.options().names, attempt.claim);
    let key = &claim.key;
    let tokens = names.tokens(attempt.slot);
    let beside = |what| names.beside_parts(key, what);
    let mut call = (Call::sized().parts(names.lock_parts(key)).arg(tokens)).parts(beside("queue"));
    if ask == Ask::Queued {
        for what in ["alone", "places", "readers", "grants", "gap", "offers"] {
            call = call.parts(beside(what));
        }
    }
    let mode = match claim.mode {
        LockMode::Exclusive => "x ",
        LockMode::Write => "w ",
        LockMode::Read => "r ",
    };
    let call = call
        .end_keys()
        .parts([claim.owner.digits()])
        .number(claim.ttl.as_millis())
        .about(mode, claim.label.as_str(), asked_at)
        .arg(counter);
    match ask {
        Ask::Plain if attempt.terms.is_vote => {
            let floor = attempt.terms.floor;
            call.number(floor.map_or(0, FencingToken::number).into())
        }
        Ask::Plain => call,
        Ask::Queued => call
            .number(place_millis(attempt))
            .arg(names.channel(key))
            .number(handover_millis(claim.ttl))
            .number(makes_offer(client, attempt).into()),
    }
}

/// Whether the next in line may be granted by the message that wakes it: where it would not be heard, the claim has to ask.
fn makes_offer(client: &RedisClient, attempt: &Attempt<'_>) -> bool {
    may_be_granted_by_message(client, attempt) && listens(client, attempt.claim)
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

/// For how long a claim that must wait keeps a place: a whole number, and 0 only for none at all. A vote takes no place: its
/// quorum asks all members again.
fn place_millis(attempt: &Attempt<'_>) -> u128 {
    let claim = attempt.claim;
    if attempt.terms.is_vote || claim.place_ttl.is_zero() {
        return 0;
    }
    claim.place_ttl.as_millis().max(1)
}
