//! The Redis store beside the memory store, which is its specification: asked the same in the same
//! order, with the same time between, both give the same answers.
//!
//! Claims with a place and without one wait in one queue, and locks are handed over. Two things
//! differ, and are no part of the comparison: a revocation takes a lock from a claim that was
//! called and has not asked in Redis only, and nobody renews or releases what it was not granted.
//!
//! Time passes by whole steps: on the manual clock of the memory store, and in the server by moving
//! every end that it keeps. Every span of a claim ends in the middle between two steps, so that the
//! moments which a case takes in fact change nothing.

use std::cell::RefCell;
use std::time::Duration;

use crate::claims::{claim, key, queued, release};
use crate::server::RedisServer;
use ::redis::Connection;
use leasehold::ErrorKind;
use leasehold::clock::{Clock, ManualClock};
use leasehold::redis::RedisStore;
use leasehold::store::{
    Acquired, Claim, Grant, LockInfo, LockMode, MemoryStore, Released, Renewed, Revoke, Share,
    Store,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tokio::runtime::Runtime;

/// Well within a handover, which the server ends by its own clock.
const FAST: Duration = Duration::from_millis(500);
/// What passes at a time.
const STEP: Duration = Duration::from_secs(40);
/// Of all claims. Their ends differ by when they came or were renewed.
const TTL: Duration = Duration::from_secs(140);
/// Moves every end in the server by so many milliseconds, except that of the counter of tokens.
const PASS: &str = r"
local step = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.match(key, ':places$') or string.match(key, ':readers$') then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      redis.call('ZINCRBY', key, -step, member)
    end
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and not string.match(key, ':token$') then
    redis.call('PEXPIRE', key, left - step)
  end
end";

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new claim asks.
    Come(Kind, bool),
    /// One that came asks again, whether it waits, holds, or is gone.
    Ask(prop::sample::Index),
    Renew(prop::sample::Index),
    Release(prop::sample::Index),
    Withdraw(prop::sample::Index),
    Downgrade(prop::sample::Index),
    Revoke(Revoke),
    Pass,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Fair,
    Read,
    Write,
    /// A reader with a share.
    Share(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop::sample::select(vec![
        Kind::Plain,
        Kind::Fair,
        Kind::Read,
        Kind::Read,
        Kind::Read,
        Kind::Write,
        Kind::Share(1),
        Kind::Share(1),
        Kind::Share(2),
        Kind::Share(3),
    ]);
    let index = any::<prop::sample::Index>;
    let how = prop::sample::select(vec![Revoke::Now, Revoke::AfterTtl]);
    let step = prop_oneof![
        6 => (kind, any::<bool>()).prop_map(|(kind, waits)| Step::Come(kind, waits)),
        6 => index().prop_map(Step::Ask),
        3 => index().prop_map(Step::Renew),
        6 => index().prop_map(Step::Release),
        2 => index().prop_map(Step::Withdraw),
        3 => index().prop_map(Step::Downgrade),
        1 => how.prop_map(Step::Revoke),
        3 => Just(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

fn claim_of(kind: Kind, waits: bool) -> Claim {
    let mut new = match kind {
        Kind::Plain => claim("a"),
        Kind::Fair => queued("a", LockMode::Exclusive),
        Kind::Read => queued("a", LockMode::Read),
        Kind::Write => queued("a", LockMode::Write),
        Kind::Share(_) => queued("a", LockMode::Read),
    };
    if let Kind::Share(permits) = kind {
        new.share = Some(Share { permits, of: 4 });
    }
    new.ttl = TTL;
    new.place_ttl = if waits { TTL } else { Duration::ZERO };
    new
}

/// What one store's clients know.
#[derive(Default)]
struct Known {
    grants: Vec<Grant>,
    /// In the order in which they had to wait.
    waiting: Vec<Claim>,
}

impl Known {
    fn grant_of(&self, claim: &Claim) -> Option<Grant> {
        let mut grants = self.grants.iter();
        grants
            .find(|grant| grant.claim.owner == claim.owner)
            .cloned()
    }
}

/// What a store said of one claim, without numbers that no two stores share.
async fn ask(store: &impl Store, claim: &Claim, known: &mut Known) -> String {
    let answer = store.acquire(claim).await;
    if !matches!(answer, Ok(Acquired::Busy { .. })) {
        known.waiting.retain(|old| old.owner != claim.owner);
    }
    match answer {
        Ok(Acquired::Granted(new)) => {
            // The memory store gives a reader its token with the handover, and Redis when the
            // reader asks.
            let is_after = |old: &Grant| match claim.mode {
                LockMode::Read => old.token != new.token,
                _ => old.token < new.token,
            };
            let is_newest = known.grants.iter().all(is_after);
            let old = known.grant_of(claim);
            if old.is_some() {
                // What its holder asks for again is renewed in Redis, and stays as it is in the
                // memory store.
                let _ = store.renew(std::slice::from_ref(&new)).await;
            }
            let reported = old.map_or(is_newest, |old| old.token == new.token);
            known.grants.retain(|old| old.claim.owner != claim.owner);
            known.grants.push(new);
            format!("granted {reported}")
        }
        Ok(Acquired::Busy { .. }) => {
            known.grants.retain(|old| old.claim.owner != claim.owner);
            if known.waiting.iter().all(|old| old.owner != claim.owner) {
                known.waiting.push(claim.clone());
            }
            "busy".to_owned()
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// A claim without a place asks, and leaves at once if it may enter.
async fn look(store: &impl Store) -> bool {
    let observer = claim_of(Kind::Plain, false);
    match store.acquire(&observer).await.unwrap() {
        Acquired::Granted(held) => {
            release(store, &held).await;
            true
        }
        _ => false,
    }
}

async fn take(
    store: &impl Store,
    step: Step,
    claims: &[Claim],
    known: &mut Known,
) -> Option<(String, Option<LockInfo>)> {
    let pick = |index: prop::sample::Index| (!claims.is_empty()).then(|| index.get(claims));
    let reported = match step {
        Step::Pass => "time passed".to_owned(),
        Step::Come(..) => ask(store, claims.last()?, known).await,
        Step::Ask(index) => ask(store, pick(index)?, known).await,
        Step::Renew(index) => {
            let grant = known.grant_of(pick(index)?)?;
            match store.renew(&[grant]).await[..] {
                [Renewed::Extended(_)] => "extended".to_owned(),
                [Renewed::Gone] => "gone".to_owned(),
                ref other => format!("{other:?}"),
            }
        }
        Step::Release(index) => {
            let grant = known.grant_of(pick(index)?)?;
            match store.release(&grant).await {
                Released::Released => "released".to_owned(),
                // In Redis that hands over what ran out; in both, whoever asks does.
                Released::AlreadyGone => format!("already gone {}", look(store).await),
                other => format!("{other:?}"),
            }
        }
        Step::Withdraw(index) => {
            let claim = pick(index)?;
            let is_withdrawn = store.withdraw(claim).await.is_ok();
            known.waiting.retain(|old| old.owner != claim.owner);
            // The memory store hands over when a claim leaves whose hold ran out; both do when
            // anybody asks.
            format!("{is_withdrawn} {}", look(store).await)
        }
        Step::Downgrade(index) => {
            let grant = known.grant_of(pick(index)?)?;
            match store.downgrade(&grant).await {
                Ok(now) => format!("{} {}", now.claim.mode, now.token == grant.token),
                // An exclusive hold, or none at all: which of the two is said of a claim that is
                // both differs.
                Err(error) if matches!(error.kind(), ErrorKind::Lost(_) | ErrorKind::Invalid) => {
                    "refused".to_owned()
                }
                Err(error) => format!("{error:?}"),
            }
        }
        Step::Revoke(how) => match store.revoke(&key("a"), how).await.unwrap() {
            leasehold::store::Revoked::Revoked { free_in } => {
                let mut reported = format!("revoked {}", free_in.is_zero());
                // It woke all of them.
                for claim in known.waiting.clone() {
                    reported += " ";
                    reported += &ask(store, &claim, known).await;
                }
                reported
            }
            other => format!("{other:?}"),
        },
    };
    Some((reported, store.inspect(&key("a")).await.unwrap()))
}

/// What is compared of a record.
fn record_of(info: Option<&LockInfo>) -> String {
    format!(
        "{:?}",
        info.map(|info| (info.mode, info.holders, info.queue))
    )
}

#[test]
fn asked_the_same_both_stores_give_the_same_answers() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let url = server.url("prefix=app&restart_quarantine=off&max_ttl=5m");
    let redis = runtime.block_on(RedisStore::connect(&url)).unwrap();
    let by_hand = RefCell::new(by_hand(&server));
    let mut config = Config::with_cases(96);
    config.failure_persistence = None;
    config.max_shrink_iters = 300;
    let mut runner = TestRunner::new(config);
    let clock = Clock::system().unwrap();
    let compared = runner.run(&steps(), |steps| {
        // A machine that stood still for the time of a handover compares again, and leaves the case
        // out in the end.
        for _ in 0..10 {
            let begun = clock.stamp();
            let compared = compare(&mut by_hand.borrow_mut(), &runtime, &redis, &steps);
            if compared.is_ok() || clock.stamp().since(&begun) < FAST {
                return compared;
            }
        }
        Err(TestCaseError::reject("the machine is too slow"))
    });
    if let Err(why) = compared {
        panic!("{why}");
    }
}

/// A plain claim asks by a shorter way than those of a read/write lock.
#[tokio::test]
async fn whoever_asks_hands_over_to_a_reader_behind_a_writer_that_died() {
    let server = RedisServer::start();
    let url = server.url("prefix=app&restart_quarantine=off&max_ttl=5m");
    let redis = RedisStore::connect(&url).await.unwrap();
    let mut by_hand = by_hand(&server);
    let [reader, writer, later, plain] = [
        (Kind::Read, false),
        (Kind::Write, true),
        (Kind::Read, true),
        (Kind::Plain, false),
    ]
    .map(|(kind, waits)| claim_of(kind, waits));

    let Acquired::Granted(read) = redis.acquire(&reader).await.unwrap() else {
        panic!("nobody holds it");
    };
    assert!(matches!(
        redis.acquire(&writer).await.unwrap(),
        Acquired::Busy { .. }
    ));
    pass(&mut by_hand);
    pass(&mut by_hand);
    assert!(matches!(
        redis.acquire(&later).await.unwrap(),
        Acquired::Busy { .. }
    ));
    assert!(matches!(
        redis.renew(&[read]).await[..],
        [Renewed::Extended(_)]
    ));
    pass(&mut by_hand);
    pass(&mut by_hand);
    // The writer's place is over by now, and the holder's time and the later reader's are not.
    assert!(matches!(
        redis.acquire(&plain).await.unwrap(),
        Acquired::Busy { .. }
    ));
    let info = redis.inspect(&key("a")).await.unwrap();
    assert_eq!(record_of(info.as_ref()), "Some((Some(Read), 2, Some(0)))");
}

/// What a holder repeats.
enum Again {
    Asked,
    Downgraded,
}

#[tokio::test]
async fn a_claim_that_is_repeated_hands_over_what_ran_out() {
    whoever_repeats_hands_over(Again::Asked).await;
}

#[tokio::test]
async fn a_downgrade_that_is_repeated_hands_over_what_ran_out() {
    whoever_repeats_hands_over(Again::Downgraded).await;
}

/// As every request does, though nothing of its own is left to change.
async fn whoever_repeats_hands_over(again: Again) {
    let server = RedisServer::start();
    let url = server.url("prefix=app&restart_quarantine=off&max_ttl=5m");
    let redis = RedisStore::connect(&url).await.unwrap();
    let mut by_hand = by_hand(&server);
    let [reader, large, small] = [
        (Kind::Read, false),
        (Kind::Share(3), false),
        (Kind::Share(2), true),
    ]
    .map(|(kind, waits)| claim_of(kind, waits));
    let Acquired::Granted(read) = redis.acquire(&reader).await.unwrap() else {
        panic!("nobody holds it");
    };
    let first = redis.acquire(&large).await.unwrap();
    assert!(matches!(first, Acquired::Granted(_)));
    pass(&mut by_hand);
    let second = redis.acquire(&small).await.unwrap();
    assert!(matches!(second, Acquired::Busy { .. }));
    pass(&mut by_hand);
    pass(&mut by_hand);
    let renewed = redis.renew(std::slice::from_ref(&read)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]));
    pass(&mut by_hand);
    match again {
        Again::Asked => assert!(matches!(
            redis.acquire(&reader).await.unwrap(),
            Acquired::Granted(_)
        )),
        Again::Downgraded => drop(redis.downgrade(&read).await.unwrap()),
    }
    let info = redis.inspect(&key("a")).await.unwrap();
    assert_eq!(record_of(info.as_ref()), "Some((Some(Read), 2, Some(0)))");
}

/// The server without a store.
fn by_hand(server: &RedisServer) -> Connection {
    let url = format!("redis://127.0.0.1:{}", server.port());
    let client = ::redis::Client::open(url).unwrap();
    client.get_connection().unwrap()
}

fn pass(by_hand: &mut Connection) {
    let millis = STEP.as_millis().to_string();
    let mut pass = ::redis::cmd("EVAL");
    let () = pass.arg(PASS).arg(0).arg(millis).query(by_hand).unwrap();
}

fn compare(
    by_hand: &mut Connection,
    runtime: &Runtime,
    redis: &RedisStore,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let () = ::redis::cmd("FLUSHALL").query(by_hand).unwrap();
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let mut claims = Vec::<Claim>::new();
    let (mut in_memory, mut in_redis) = (Known::default(), Known::default());
    // A claim whose hold is gone is never granted again; which store refuses it from which moment
    // on is its own affair.
    let mut over = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let chosen = match *step {
            Step::Ask(index) | Step::Renew(index) | Step::Release(index) => {
                (!claims.is_empty()).then(|| index.get(&claims).owner)
            }
            _ => None,
        };
        if matches!(step, Step::Ask(_)) && chosen.is_some_and(|owner| over.contains(&owner)) {
            continue;
        }
        // A claim that was called holds in Redis, and is next in the memory store.
        if matches!(step, Step::Revoke(_)) && is_called(by_hand, &in_redis) {
            continue;
        }
        match *step {
            Step::Come(kind, waits) => claims.push(claim_of(kind, waits)),
            Step::Pass => {
                clock.advance(STEP);
                pass(by_hand);
            }
            Step::Revoke(_) => over.extend(in_memory.grants.iter().map(|held| held.claim.owner)),
            _ => {}
        }
        let expected = runtime.block_on(take(&memory, *step, &claims, &mut in_memory));
        if let Some((reported, _)) = &expected
            && reported.contains("gone")
        {
            over.extend(chosen);
        }
        let reported = runtime.block_on(take(redis, *step, &claims, &mut in_redis));
        let text = |side: &Option<(String, Option<LockInfo>)>| {
            let (said, info) = side.as_ref()?;
            Some(format!("{said}, then {}", record_of(info.as_ref())))
        };
        let (expected_text, reported_text) = (text(&expected), text(&reported));
        prop_assert_eq!(
            reported_text,
            expected_text,
            "step {} of {:?}",
            number,
            steps
        );
    }
    Ok(())
}

/// Whether a claim was called that has not asked since.
fn is_called(by_hand: &mut Connection, known: &Known) -> bool {
    let text = "local holder = redis.call('GET', 'app:a') or ''
        if holder ~= 'leasehold:readers' then
          return {string.sub(holder, 1, 32)}
        end
        return redis.call('ZRANGE', 'app:a{app:a}:readers', 0, -1)";
    let mut holders = ::redis::cmd("EVAL");
    let holders: Vec<String> = holders.arg(text).arg(0).query(by_hand).unwrap();
    let has_asked = |holder: &String| {
        let mut grants = known.grants.iter();
        grants.any(|grant| grant.claim.owner.expose() == *holder)
    };
    holders
        .iter()
        .any(|holder| holder.len() == 32 && !has_asked(holder))
}
