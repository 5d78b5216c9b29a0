//! A key that rests after the release of a lock that is held for at least some time.

use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::fence::{Fence, FenceGate};
use leasehold::handler::{AcquireRequest, AcquireResponse, Handler, Next};
use leasehold::store::{MemoryStore, Released, Revoke};
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{Error, ErrorKind, FencingToken, Key, LockManager, Settings};

use crate::plain::plain;
use crate::support::{World, ms, poll_once, secs, while_time_passes};

/// Longer than any TTL.
const AT_LEAST: Duration = secs(300);

/// A manager whose requests can be lost.
fn over_a_network() -> (ManualClock, Faulty<MemoryStore>, LockManager) {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(store, clock.clone(), 7);
    let builder = LockManager::builder(network.clone()).clock(clock.clone());
    (clock, network, builder.build().unwrap())
}

#[tokio::test]
async fn a_short_job_leaves_its_key_resting_until_its_time_has_passed_since_the_grant() {
    let world = World::new();
    let lock = world.ours.lock("nightly").hold_at_least(AT_LEAST);
    let guard = lock.acquire().await.unwrap();
    world.pass(secs(20)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let info = world.theirs.inspect("nightly").await.unwrap().unwrap();
    assert!(info.is_resting, "{info:?}");
    assert_eq!((info.holders, info.label), (0, None));
    assert_eq!(info.remaining, Some(AT_LEAST - secs(20)));

    for locks in [&world.ours, &world.theirs] {
        let tried = locks.lock("nightly").try_acquire().await.unwrap();
        assert!(tried.is_none());
    }
    world.pass(AT_LEAST - secs(21)).await;
    let early = world.theirs.lock("nightly").try_acquire().await.unwrap();
    assert!(early.is_none());
    world.pass(secs(1)).await;
    let next = world.theirs.lock("nightly").try_acquire().await.unwrap();
    assert!(next.is_some());
}

#[tokio::test]
async fn a_job_that_took_its_time_leaves_no_rest() {
    let world = World::new();
    let lock = world.ours.lock("nightly").hold_at_least(secs(5));
    let guard = lock.acquire().await.unwrap();
    world.pass(secs(5)).await;
    guard.release().await.unwrap();
    assert!(world.is_free("nightly").await);
}

#[tokio::test]
async fn a_dropped_guard_leaves_a_rest_too() {
    let world = World::new();
    let lock = world.ours.lock("nightly").hold_at_least(AT_LEAST);
    drop(lock.acquire().await.unwrap());
    world.settled().await;
    let info = world.theirs.inspect("nightly").await.unwrap().unwrap();
    assert!(info.is_resting, "{info:?}");
}

#[tokio::test]
async fn a_lease_that_lapsed_leaves_no_rest() {
    let (clock, network, locks) = over_a_network();
    let lock = locks.lock("nightly").hold_at_least(AT_LEAST);
    let _guard = lock.acquire().await.unwrap();
    network.block(Operation::Renew);
    for _ in 0..300 {
        clock.advance(ms(100));
        locks.settled().await;
    }
    assert!(locks.inspect("nightly").await.unwrap().is_none());
}

#[tokio::test]
async fn a_release_that_was_not_answered_leaves_one_rest() {
    let (clock, network, locks) = over_a_network();
    let lock = locks.lock("nightly").hold_at_least(AT_LEAST);
    let guard = lock.acquire().await.unwrap();
    // The request is lost, and repeated in the background.
    network.block(Operation::Release);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt);
    network.unblock(Operation::Release);
    for _ in 0..20 {
        clock.advance(ms(100));
        locks.settled().await;
    }
    let info = locks.inspect("nightly").await.unwrap().unwrap();
    assert!(info.is_resting, "{info:?}");
    assert_eq!(info.remaining, Some(AT_LEAST - secs(2)));
}

#[tokio::test]
async fn no_waiter_is_given_a_key_that_rests() {
    let world = World::new();
    let lock = world.ours.lock("nightly").hold_at_least(secs(20));
    let guard = lock.acquire().await.unwrap();
    let began = world.now();
    // One in our process, who would get the hold by a handoff, and one in another, by a handover.
    let (ours, theirs) = (lock.clone(), world.theirs.lock("nightly"));
    let release = async {
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
    };
    let waiters = async {
        let first = tokio::select! {
            first = ours.acquire() => first,
            first = theirs.acquire() => first,
        };
        first.unwrap()
    };
    let both = async { tokio::join!(waiters, release) };
    let (_first, ()) = while_time_passes(&world, secs(40), both).await;
    assert!(world.now().since(&began) >= secs(20));
}

#[tokio::test]
async fn whoever_waits_in_vain_learns_that_the_key_rests() {
    let world = World::new();
    let lock = world.ours.lock("nightly").hold_at_least(AT_LEAST);
    lock.acquire().await.unwrap().release().await.unwrap();
    let waiting = world.theirs.lock("nightly");
    let error = while_time_passes(&world, secs(60), waiting.acquire()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    // The withdrawal of the claim may take one more step of the clock.
    let left = error.retry_after().unwrap();
    let expected = AT_LEAST - secs(45);
    assert!((expected - ms(100)..=expected).contains(&left), "{left:?}");
    let text = format!(
        "contended: the lock was not free within the wait: key=nightly; it rests for another {:.1} s after its release; try then",
        left.as_secs_f64()
    );
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn an_operator_ends_a_rest() {
    let world = World::new();
    let lock = world.ours.lock("nightly").hold_at_least(AT_LEAST);
    lock.acquire().await.unwrap().release().await.unwrap();
    let _ = world
        .theirs
        .revoke("nightly", Revoke::AfterTtl)
        .await
        .unwrap();
    assert!(!world.is_free("nightly").await);
    let _ = world.theirs.revoke("nightly", Revoke::Now).await.unwrap();
    assert!(world.is_free("nightly").await);
}

#[tokio::test]
async fn what_cannot_rest_is_refused_before_anything_is_held() {
    let world = World::new();
    let locks = LockManager::new(plain(world.store.clone())).unwrap();
    let asked = locks.lock("a").hold_at_least(secs(1)).try_acquire().await;
    let error = asked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let too_long = secs(31 * 24 * 60 * 60);
    let asked = world
        .ours
        .lock("a")
        .hold_at_least(too_long)
        .try_acquire()
        .await;
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(world.is_free("a").await);
}

/// No job was done: the next host must not find the key resting.
#[tokio::test]
async fn a_grant_whose_guard_nobody_got_leaves_no_rest() {
    let world = World::built(Settings::default(), |b| b.handler(RefusesOne));
    // Whatever gives it back does so in the background.
    let rests = async |key: &str| {
        loop {
            world.settled().await;
            match world.theirs.inspect(key).await.unwrap() {
                Some(info) if !info.is_resting => tokio::task::yield_now().await,
                given_back => return given_back.is_some(),
            }
        }
    };
    let lock = world.ours.lock("nightly").hold_at_least(AT_LEAST);

    let gate = FenceGate::new();
    let newer = FencingToken::new(1 << 40).unwrap();
    gate.raise_to(&"nightly".parse().unwrap(), newer).unwrap();
    let fenced = lock.clone().fence(gate);
    assert!(fenced.acquire().await.is_err());
    assert!(!rests("nightly").await, "a newer holder raised its fence");

    let silent = lock.clone().fence(Silent);
    let mut dropped = Box::pin(silent.acquire());
    assert!(poll_once(dropped.as_mut()).await.is_pending());
    world.settled().await;
    assert!(poll_once(dropped.as_mut()).await.is_pending());
    assert!(!world.is_free("nightly").await, "it waits for its fence");
    drop(dropped);
    assert!(
        !rests("nightly").await,
        "dropped before its fence was raised"
    );

    let refused = world.ours.lock("refused").hold_at_least(AT_LEAST);
    assert!(refused.acquire().await.is_err());
    assert!(!rests("refused").await, "a handler refused");

    // The same lock rests once a caller had its guard.
    drop(lock.fence(FenceGate::new()).acquire().await.unwrap());
    assert!(rests("nightly").await);
}

/// A fence that does not answer.
#[derive(Debug)]
struct Silent;

impl Fence for Silent {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        std::future::pending().await
    }
}

/// Refuses every grant of one key.
struct RefusesOne;

impl Handler for RefusesOne {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        let granted = next.run(request).await?;
        if request.key().as_str() == "refused" {
            return Err(Error::new(ErrorKind::Denied, "not now"));
        }
        Ok(granted)
    }
}

#[tokio::test]
async fn a_rest_outlives_the_withdrawal_of_an_acquire_that_was_not_answered() {
    let (clock, network, locks) = over_a_network();
    let lock = locks.lock("nightly").hold_at_least(AT_LEAST);
    // The store grants, and the answer is lost. The same claim is asked again.
    let mut lossy = Faults::default();
    lossy.lost_after = 1.0;
    network.set(lossy).unwrap();
    let mut acquiring = Box::pin(lock.acquire());
    assert!(poll_once(&mut acquiring).await.is_pending());
    network.set(Faults::default()).unwrap();
    clock.advance(ms(100));
    let guard = acquiring.await.unwrap();
    assert_eq!(network.counts(Operation::Acquire).asked, 2);
    network.block(Operation::Release);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt);
    locks.settled().await;
    network.unblock(Operation::Release);
    for _ in 0..20 {
        clock.advance(ms(100));
        locks.settled().await;
    }
    let info = locks.inspect("nightly").await.unwrap();
    assert!(info.is_some_and(|info| info.is_resting));
    assert!(network.counts(Operation::Withdraw).asked > 0);
}

/// It is woken once, for a job that it might wait for.
#[tokio::test]
async fn a_waiter_that_a_rest_wakes_asks_once_more_and_waits_on() {
    let (clock, network, waits) = over_a_network();
    let holds = LockManager::builder(network.clone()).clock(clock.clone());
    let holds = holds.build().unwrap();
    let held = holds.lock("a").hold_at_least(AT_LEAST).acquire().await;
    let lock = waits.lock("a");
    let mut waiting = Box::pin(lock.acquire_within(AT_LEAST));
    assert!(poll_once(&mut waiting).await.is_pending());
    let asked = || network.counts(Operation::Acquire).asked;
    let before = asked();
    let _ = held.unwrap().release().await.unwrap();
    for _ in 0..100 {
        assert!(poll_once(&mut waiting).await.is_pending());
    }
    assert!(asked() - before <= 2, "{before} {}", asked());
    let woken = asked();
    for _ in 0..100 {
        clock.advance(ms(100));
        waits.settled().await;
        assert!(poll_once(&mut waiting).await.is_pending());
    }
    assert!(asked() - woken <= 11, "{woken} {}", asked());
}
