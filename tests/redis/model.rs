//! The Redis store beside the memory store, which is its specification: asked the same in the same order, with the same
//! time between, both give the same answers.
//!
//! Time passes by whole steps: on the manual clock of the memory store, and in the server by moving every end that it keeps.
//! Every span of a claim ends in the middle between two steps, so that the moments which a case takes in fact change nothing.

use std::time::Duration;

use crate::claims::{claim, key, queued};
use crate::server::RedisServer;
use leasehold::ErrorKind;
use leasehold::clock::ManualClock;
use leasehold::store::{
    Acquired, Claim, Grant, LockMode, MemoryStore, RedisStore, Released, Renewed, Revoke, Store,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// What passes at a time.
const STEP: Duration = Duration::from_secs(40);
/// Of all claims. Their ends differ by when they came or were renewed.
const TTL: Duration = Duration::from_secs(140);
/// What claims ask for their places.
const PLACES: [Duration; 3] = [
    Duration::from_secs(20),
    Duration::from_secs(60),
    Duration::from_secs(140),
];

/// Moves every end in the server by so many milliseconds, but for tombstones: for how long beyond a ttl a store remembers
/// what was withdrawn is its own affair.
const PASS: &str = r"
local step = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.match(key, ':places$') or string.match(key, ':readers$') then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      redis.call('ZINCRBY', key, -step, member)
    end
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and not string.match(key, ':gone:') then
    redis.call('PEXPIRE', key, left - step)
  end
end";

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new claim asks.
    Come(Kind, Duration),
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
    Once,
    Read,
    Write,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop::sample::select(vec![
        Kind::Plain,
        Kind::Fair,
        Kind::Once,
        Kind::Read,
        Kind::Read,
        Kind::Read,
        Kind::Write,
    ]);
    let index = any::<prop::sample::Index>;
    let place_ttl = prop::sample::select(PLACES.to_vec());
    let how = prop::sample::select(vec![Revoke::Now, Revoke::AfterTtl]);
    let step = prop_oneof![
        6 => (kind, place_ttl).prop_map(|(kind, place_ttl)| Step::Come(kind, place_ttl)),
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

fn claim_of(kind: Kind, place_ttl: Duration) -> Claim {
    let mut new = match kind {
        Kind::Plain => claim("a"),
        Kind::Fair | Kind::Once => queued("a", LockMode::Exclusive),
        Kind::Read => queued("a", LockMode::Read),
        Kind::Write => queued("a", LockMode::Write),
    };
    new.ttl = TTL;
    new.place_ttl = match kind {
        Kind::Once => Duration::ZERO,
        _ => place_ttl,
    };
    new
}

/// What a store said of one claim, without numbers that no two stores share.
async fn ask(store: &impl Store, claim: &Claim, grants: &mut Vec<Grant>) -> String {
    match store.acquire(claim).await {
        Ok(Acquired::Granted(new)) => {
            let is_newest = grants.iter().all(|old| old.token < new.token);
            let known = grants.iter().find(|old| old.claim.owner == claim.owner);
            let told = known.map_or(is_newest, |old| old.token == new.token);
            let told = format!("granted {told}");
            grants.retain(|old| old.claim.owner != claim.owner);
            grants.push(new);
            told
        }
        Ok(Acquired::Busy { .. }) => "busy".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// The grant that a claim has or might have: a confused client may say anything.
fn grant_of(store: &[Grant], claim: &Claim) -> Grant {
    let known = store.iter().find(|grant| grant.claim.owner == claim.owner);
    known.cloned().unwrap_or_else(|| {
        let token = leasehold::FencingToken::new(1).unwrap();
        let proof = leasehold::store::GrantProof::of(claim.ttl);
        Grant::new(claim.clone(), token, proof)
    })
}

async fn take(
    store: &impl Store,
    step: Step,
    claims: &[Claim],
    grants: &mut Vec<Grant>,
) -> Option<String> {
    let pick = |index: prop::sample::Index| (!claims.is_empty()).then(|| index.get(claims));
    let told = match step {
        Step::Pass => "time passed".to_owned(),
        Step::Come(..) => ask(store, claims.last()?, grants).await,
        Step::Ask(index) => ask(store, pick(index)?, grants).await,
        Step::Renew(index) => match store.renew(&[grant_of(grants, pick(index)?)]).await[..] {
            [Renewed::Extended(_)] => "extended".to_owned(),
            [Renewed::Gone] => "gone".to_owned(),
            ref other => format!("{other:?}"),
        },
        Step::Release(index) => match store.release(&grant_of(grants, pick(index)?)).await {
            Released::Released => "released".to_owned(),
            Released::AlreadyGone => "already gone".to_owned(),
            other => format!("{other:?}"),
        },
        Step::Withdraw(index) => format!("{:?}", store.withdraw(pick(index)?).await.is_ok()),
        Step::Downgrade(index) => {
            let grant = grant_of(grants, pick(index)?);
            match store.downgrade(&grant).await {
                Ok(now) => format!("{} {}", now.claim.mode, now.token == grant.token),
                // An exclusive hold, or none at all: which of the two is said of a claim that is both differs.
                Err(error) if matches!(error.kind(), ErrorKind::Lost(_) | ErrorKind::Invalid) => {
                    "refused".to_owned()
                }
                Err(error) => format!("{error:?}"),
            }
        }
        Step::Revoke(how) => match store.revoke(&key("a"), how).await.unwrap() {
            leasehold::store::Revoked::Revoked { free_in } => {
                format!("revoked {}", free_in.is_zero())
            }
            other => format!("{other:?}"),
        },
    };
    let record = store.inspect(&key("a")).await.unwrap();
    let record = record.map(|record| (record.mode, record.holders, record.queue));
    Some(format!("{told}, then {record:?}"))
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
    let mut config = Config::with_cases(96);
    config.failure_persistence = None;
    config.max_shrink_iters = 300;
    let mut runner = TestRunner::new(config);
    let compared = runner.run(&steps(), |steps| {
        server.cli(&["FLUSHALL"]);
        let clock = ManualClock::new();
        let memory = MemoryStore::with_clock(clock.clone());
        let (mut claims, mut in_memory, mut in_redis) = (Vec::new(), Vec::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Come(kind, place_ttl) => claims.push(claim_of(kind, place_ttl)),
                Step::Pass => {
                    clock.advance(STEP);
                    let millis = STEP.as_millis().to_string();
                    server.cli(&["EVAL", PASS, "0", &millis]);
                }
                _ => {}
            }
            let expected = runtime.block_on(take(&memory, *step, &claims, &mut in_memory));
            let told = runtime.block_on(take(&redis, *step, &claims, &mut in_redis));
            prop_assert_eq!(told, expected, "step {} of {:?}", number, steps);
        }
        Ok(())
    });
    if let Err(why) = compared {
        panic!("{why}");
    }
}
