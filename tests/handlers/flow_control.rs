//! Flow control: rates, a limit at once, refusing and waiting.
use std::time::Duration;

use crate::support::{World, ms, no_handoff, poll_once, secs, until_ended, while_time_passes};
use leasehold::handler::{FlowControl, Rate};
use leasehold::{ErrorKind, Settings};

fn limited(flow: FlowControl) -> World {
    World::built(no_handoff(), |b| b.handler(flow))
}

fn rate(count: u32) -> Rate {
    Rate::per(count, secs(1)).unwrap()
}

/// Whether a single look gets through, and lets go again.
async fn passes(world: &World, key: &str) -> bool {
    match world.ours.lock(key).try_acquire().await {
        Ok(guard) => {
            let _ = guard.unwrap().release().await;
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Contended);
            assert!(error.to_string().contains("flow control"), "{error}");
            false
        }
    }
}

/// Until a look gets through. What a dropped or lost hold took is given back on a thread of its
/// own, which no barrier waits for.
async fn until_passes(world: &World, key: &str) {
    for _ in 0..100_000 {
        if passes(world, key).await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{key}: a place was never given back");
}

#[tokio::test]
async fn a_key_that_is_asked_for_too_often_is_refused_until_its_rate_allows_it() {
    let world = limited(FlowControl::new().per_key(rate(2)));
    assert!(passes(&world, "a").await);
    assert!(passes(&world, "a").await);
    assert!(!passes(&world, "a").await);
    assert!(
        passes(&world, "b").await,
        "another key has a rate of its own"
    );
    world.pass(ms(500)).await;
    assert!(passes(&world, "a").await);
    assert!(!passes(&world, "a").await);
}

#[tokio::test]
async fn the_rate_in_total_is_for_all_keys() {
    let world = limited(FlowControl::new().in_total(rate(3)));
    for key in ["a", "b", "c"] {
        assert!(passes(&world, key).await);
    }
    assert!(!passes(&world, "d").await);
    world.pass(ms(400)).await;
    assert!(passes(&world, "d").await);
}

#[tokio::test]
async fn a_burst_is_what_may_come_together_after_a_pause() {
    let world = limited(FlowControl::new().in_total(rate(1).burst(4).unwrap()));
    for _ in 0..4 {
        assert!(passes(&world, "a").await);
    }
    assert!(!passes(&world, "a").await);
    world.pass(secs(60)).await;
    for _ in 0..4 {
        assert!(passes(&world, "a").await);
    }
    assert!(!passes(&world, "a").await);
}

#[tokio::test]
async fn a_call_that_waits_is_delayed_within_its_budget() {
    let world = limited(FlowControl::new().per_key(rate(1)).waits());
    assert!(passes(&world, "a").await);
    let begin = world.now();
    let lock = world.ours.lock("a");
    let guard = while_time_passes(&world, secs(60), lock.acquire_within(secs(5))).await;
    assert!(guard.unwrap().is_some());
    assert_eq!(world.now().since(&begin), secs(1));
}

#[tokio::test]
async fn a_call_whose_budget_cannot_be_enough_is_refused_at_once() {
    let world = limited(FlowControl::new().per_key(rate(1)).waits());
    assert!(passes(&world, "a").await);
    let begin = world.now();
    let refused = world.ours.lock("a").acquire_within(ms(900)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Contended);
    assert!(!passes(&world, "a").await, "a single look has no budget");
    assert_eq!(world.now(), begin);
}

#[tokio::test]
async fn so_many_are_held_at_once_and_each_end_lets_the_next_one_in() {
    let world = limited(FlowControl::new().at_once(2));
    let first = world.ours.lock("a").acquire().await.unwrap();
    let second = world.ours.lock("b").acquire().await.unwrap();
    assert!(!passes(&world, "c").await);
    let _ = first.release().await;
    assert!(passes(&world, "c").await);
    drop(second);
    until_ended(&world, "b").await;
    let held = world.ours.lock("a").acquire().await.unwrap();
    until_passes(&world, "c").await;
    world.store.forget();
    world.pass(secs(4)).await;
    assert!(!held.lease().is_live());
    let _again = world.ours.lock("a").acquire().await.unwrap();
    until_passes(&world, "c").await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_place_gets_the_next_one() {
    let world = limited(FlowControl::new().at_once(1).waits());
    let first = world.ours.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("b");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    assert!(world.is_free("b").await, "the store has not been asked");
    let _ = first.release().await;
    assert!(waiting.await.unwrap().lease().is_live());
}

#[tokio::test]
async fn a_call_that_waits_in_vain_for_a_place_ends_with_its_budget() {
    let world = limited(FlowControl::new().at_once(1).waits());
    let _first = world.ours.lock("a").acquire().await.unwrap();
    let begin = world.now();
    let lock = world.ours.lock("b");
    let refused = while_time_passes(&world, secs(60), lock.acquire_within(secs(2))).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(world.now().since(&begin), secs(2));
}

#[tokio::test]
async fn no_limit_is_no_limit() {
    let world = World::built(Settings::default(), |b| b.handler(FlowControl::new()));
    for _ in 0..100 {
        assert!(passes(&world, "a").await);
    }
}

#[test]
fn a_rate_of_nothing_is_refused() {
    for refused in [
        Rate::per(0, secs(1)),
        Rate::per(1, secs(0)),
        Rate::per(2, Duration::from_nanos(1)),
        rate(1).burst(0),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// The longest time in which a burst may come back.
const LONGEST: Duration = secs(100 * 365 * 24 * 60 * 60);

#[test]
fn a_rate_of_once_in_a_blue_moon_is_refused_before_it_is_used() {
    for refused in [
        Rate::per(1, Duration::MAX),
        Rate::per(u32::MAX, Duration::MAX),
        Rate::per(1, LONGEST + secs(1)),
        Rate::per(1, LONGEST).and_then(|rate| rate.burst(2)),
        rate(1).burst(u32::MAX),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("100 years"), "{error}");
    }
}

#[tokio::test]
async fn the_slowest_rate_lets_one_call_through_and_says_when_the_next_may_come() {
    let slowest = Rate::per(1, LONGEST).unwrap();
    let world = limited(FlowControl::new().per_key(slowest).in_total(slowest));
    assert!(passes(&world, "a").await);
    world.pass(secs(60)).await;
    assert!(!passes(&world, "a").await);
    assert!(!passes(&world, "b").await);
}

#[tokio::test]
async fn a_refusal_says_in_whole_milliseconds_when_a_call_may_come() {
    let world = limited(FlowControl::new().per_key(rate(3)));
    for _ in 0..3 {
        assert!(passes(&world, "a").await);
    }
    let refused = world.ours.lock("a").try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains(" next_in=334ms;"), "{refused}");
}
