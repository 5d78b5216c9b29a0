//! At most n holders of a name.

use std::collections::HashSet;

use leasehold::{ErrorKind, Settings};

use crate::support::{World, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::leaves_nothing_whenever_dropped;

#[tokio::test]
async fn at_most_n_hold_at_a_time_over_all_processes_and_each_has_a_slot() {
    let world = World::new();
    let (ours, theirs) = (world.ours.semaphore("s", 3), world.theirs.semaphore("s", 3));
    let one = ours.acquire().await.unwrap();
    let two = theirs.acquire().await.unwrap();
    let three = ours.acquire().await.unwrap();
    let slots: HashSet<_> = [&one, &two, &three].map(|guard| guard.slot()).into();
    assert_eq!(slots, HashSet::from([0, 1, 2]));
    assert!(ours.try_acquire().await.unwrap().is_none());
    assert!(theirs.try_acquire().await.unwrap().is_none());
    let slot = two.slot();
    let _ = two.release().await;
    assert_eq!(ours.try_acquire().await.unwrap().unwrap().slot(), slot);
}

#[tokio::test]
async fn a_slot_has_a_key_and_tokens_of_its_own() {
    let world = World::new();
    let semaphore = world.ours.semaphore("s", 2);
    let mut last = std::collections::HashMap::new();
    for _ in 0..10 {
        let guard = semaphore.acquire().await.unwrap();
        assert_eq!(guard.key().as_str(), format!("s/slot-{}", guard.slot()));
        let before = last.insert(guard.slot(), guard.token());
        assert!(before.is_none_or(|before| before < guard.token()));
        let _ = guard.release().await;
    }
}

#[tokio::test]
async fn who_waits_gets_whichever_slot_is_free_first_and_no_other() {
    let world = World::new();
    let (ours, theirs) = (world.ours.semaphore("s", 2), world.theirs.semaphore("s", 2));
    let _one = ours.acquire().await.unwrap();
    let two = ours.acquire().await.unwrap();
    let mut waiting = Box::pin(theirs.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let slot = two.slot();
    let _ = two.release().await;
    let next = while_time_passes(&world, secs(3), waiting).await.unwrap();
    assert_eq!(next.slot(), slot);
    world.settled().await;
    assert_eq!(world.theirs.held().len(), 1);
}

#[tokio::test]
async fn a_wait_in_vain_names_who_holds_the_slots() {
    let world = World::labelled("web-3:4502");
    let (ours, theirs) = (world.ours.semaphore("s", 2), world.theirs.semaphore("s", 2));
    let _guards = [ours.acquire().await.unwrap(), ours.acquire().await.unwrap()];
    let wait = world.theirs.settings().wait;
    let error = while_time_passes(&world, wait + secs(1), theirs.acquire()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    let expected = "slots=2; held by web-3:4502; try later";
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn a_wait_ends_with_its_budget_and_holds_nothing() {
    let world = World::new();
    let (ours, theirs) = (world.ours.semaphore("s", 2), world.theirs.semaphore("s", 2));
    let guards = [ours.acquire().await.unwrap(), ours.acquire().await.unwrap()];
    let waited = while_time_passes(&world, secs(4), theirs.acquire_within(secs(2))).await;
    assert!(waited.unwrap().is_none());
    drop(guards);
    world.settled().await;
    assert!(world.is_free("s/slot-0").await && world.is_free("s/slot-1").await);
}

#[tokio::test]
async fn a_dead_holders_slot_is_taken_when_its_ttl_is_over() {
    let world = World::new();
    let _dead = world.ours.semaphore("s", 1).acquire().await.unwrap();
    world.clock.advance(secs(11));
    assert!(
        world
            .theirs
            .semaphore("s", 1)
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn bad_input_is_an_error_of_every_call() {
    let world = World::new();
    for semaphore in [
        world.ours.semaphore("s", 0),
        world.ours.semaphore("s", 65),
        world.ours.semaphore("s//t", 2),
    ] {
        assert_eq!(
            semaphore.acquire().await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
        assert_eq!(
            semaphore.try_acquire().await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_await_leaks_nothing() {
    leaves_nothing_whenever_dropped(2, async |locks, times| {
        // One slot is taken, so that the others are searched for.
        let taken = locks.lock("s/slot-0").acquire().await.unwrap();
        let completed = poll_and_drop(times, locks.semaphore("s", 2).acquire());
        let _ = taken.release().await;
        completed
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_waits_for_any_slot_counts_as_one_waiter() {
    let mut settings = Settings::default();
    settings.max_waiters = 3;
    let world = World::with(settings);
    let (ours, theirs) = (
        world.ours.semaphore("s", 64),
        world.theirs.semaphore("s", 64),
    );
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(theirs.acquire().await.unwrap());
    }
    let _other = world.theirs.lock("other").acquire().await.unwrap();
    let (mut one, mut two) = (Box::pin(ours.acquire()), Box::pin(ours.acquire()));
    assert!(poll_once(&mut one).await.is_pending());
    assert!(poll_once(&mut two).await.is_pending());
    let fair = world.ours.lock("other").fair();
    let mut three = Box::pin(fair.acquire());
    assert!(poll_once(&mut three).await.is_pending());
    let refused = ours.acquire().await.unwrap_err();
    assert!(refused.to_string().contains("max_waiters=3"), "{refused}");
    // Who leaves makes room for another.
    drop(one);
    let mut four = Box::pin(ours.acquire());
    assert!(poll_once(&mut four).await.is_pending());
}
