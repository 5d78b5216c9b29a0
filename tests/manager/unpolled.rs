//! A caller that nobody polls keeps a lock from nobody: its task is in another branch of a
//! `select!`, or its runtime computes.
use std::sync::Arc;
use std::task::Poll;

use leasehold::fence::Fence;
use leasehold::{Error, FencingToken, Key, Lock, LockGuard};
use tokio::sync::Notify;

use crate::support::{World, held_and_waited_for, ms, poll_once, secs, while_time_passes};
use crate::yielding::yielding;

/// The first caller holds, and the second waits for `wait`; then the first releases, and nobody
/// polls the second.
async fn released_to_the_second(
    lock: &Lock,
    wait: u64,
) -> impl Future<Output = Held> + Unpin + use<> {
    let held = lock.acquire().await.unwrap();
    let lock = lock.clone();
    let mut waiting = Box::pin(async move { lock.acquire_within(secs(wait)).await.unwrap() });
    assert!(poll_once(&mut waiting).await.is_pending());
    held.release().await.unwrap();
    waiting
}

type Held = Option<LockGuard>;

/// Whether the other process gets the lock now. It has given it back then.
async fn is_theirs_to_take(world: &World) -> bool {
    let is_theirs = world.is_theirs_to_take("a").await;
    world.settled().await;
    is_theirs
}

#[tokio::test]
async fn a_hold_that_was_handed_off_and_not_claimed_goes_to_the_other_processes() {
    let world = World::new();
    let waiting = released_to_the_second(&world.ours.lock("a"), 10).await;
    assert!(!is_theirs_to_take(&world).await, "handed off");
    world.pass(ms(400)).await;
    let theirs = world.theirs.lock("a").try_acquire().await.unwrap();
    let theirs = theirs.expect("nobody claimed it within handoff_time");
    assert!(world.ours.held().is_empty());
    // The caller comes late, and has lost nothing but its turn.
    let mut waiting = waiting;
    assert!(poll_once(&mut waiting).await.is_pending());
    theirs.release().await.unwrap();
    let held = while_time_passes(&world, secs(3), waiting).await.unwrap();
    assert!(held.lease().is_live());
}

#[tokio::test]
async fn a_hold_that_was_handed_off_is_not_renewed_before_it_is_claimed() {
    let mut settings = leasehold::Settings::default();
    settings.handoff_time = secs(60);
    let world = World::with(settings);
    let _waiting = released_to_the_second(&world.ours.lock("a"), 45).await;
    world.pass(secs(11)).await;
    assert!(is_theirs_to_take(&world).await);
}

#[tokio::test]
async fn a_hold_that_was_claimed_is_renewed_and_ends_with_its_own_longest_time() {
    for max_hold in [None, Some(secs(15))] {
        let world = World::new();
        let mut lock = world.ours.lock("a");
        if let Some(max_hold) = max_hold {
            lock = lock.max_hold(max_hold);
        }
        let waiting = released_to_the_second(&lock, 10).await;
        world.pass(ms(100)).await;
        let held = waiting.await.unwrap();
        world.pass(secs(12)).await;
        assert!(held.lease().is_live());
        world.pass(secs(12)).await;
        assert_eq!(held.lease().is_live(), max_hold.is_none());
    }
}

#[tokio::test]
async fn a_caller_whose_wait_is_over_gets_neither_a_hold_nor_a_turn() {
    for handoff in [true, false] {
        let world = World::new();
        let lock = world.ours.lock("a").handoff(handoff);
        let waiting = released_to_the_second(&lock, 1).await;
        // The manager is as late as the caller.
        world.clock.advance(ms(1_100));
        assert!(waiting.await.is_none(), "handoff={handoff}");
        world.settled().await;
        assert!(is_theirs_to_take(&world).await);
        assert!(lock.try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn an_answer_that_is_taken_after_the_wait_is_given_back() {
    let (clock, locks) = yielding();
    let lock = locks.lock("a");
    let mut waiting = Box::pin(lock.acquire_within(secs(1)));
    while locks.inspect("a").await.unwrap().is_none() {
        assert!(poll_once(&mut waiting).await.is_pending());
    }
    clock.advance(secs(2));
    let held = loop {
        if let Poll::Ready(held) = poll_once(&mut waiting).await {
            break held.unwrap();
        }
    };
    assert!(held.is_none());
    locks.settled().await;
    assert!(locks.inspect("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_turn_that_nobody_takes_passes_to_the_next_caller_of_the_process() {
    let world = World::new();
    let lock = world.ours.lock("a").handoff(false);
    let late = released_to_the_second(&lock, 10).await;
    assert!(lock.try_acquire().await.unwrap().is_none(), "it is called");
    let mut third = Box::pin(lock.acquire());
    assert!(poll_once(&mut third).await.is_pending());
    world.pass(ms(400)).await;
    let Poll::Ready(held) = poll_once(&mut third).await else {
        panic!("the turn of a caller that is not polled is waited for");
    };
    held.unwrap().release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
    // Who comes late asks beside the queue.
    let held = while_time_passes(&world, secs(3), late).await.unwrap();
    assert!(held.lease().is_live());
}

/// It has asked the store, and is not polled any more.
#[tokio::test]
async fn a_turn_whose_caller_stopped_asking_passes_to_the_next_caller_of_the_process() {
    for is_waited_for in [true, false] {
        let world = World::new();
        let theirs = world.theirs.lock("a").acquire().await.unwrap();
        let lock = world.ours.lock("a");
        let mut stopped = Box::pin(lock.acquire());
        assert!(poll_once(&mut stopped).await.is_pending());
        let mut second = Box::pin(lock.acquire());
        if is_waited_for {
            assert!(poll_once(&mut second).await.is_pending());
        }
        theirs.release().await.unwrap();
        // The store waits for a second too.
        world.pass(secs(5)).await;
        assert!(is_theirs_to_take(&world).await);
        let Poll::Ready(held) = poll_once(&mut second).await else {
            panic!("the turn is waited for: is_waited_for={is_waited_for}");
        };
        held.unwrap().release().await.unwrap();
        let held = while_time_passes(&world, secs(3), stopped).await.unwrap();
        assert!(held.lease().is_live());
    }
}

#[tokio::test]
async fn a_caller_that_asks_again_and_again_keeps_its_turn() {
    let world = World::new();
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let mut first = Box::pin(lock.acquire());
    let mut second = Box::pin(lock.acquire());
    for _ in 0..200 {
        assert!(poll_once(&mut first).await.is_pending());
        assert!(poll_once(&mut second).await.is_pending());
        world.pass(ms(100)).await;
    }
    let info = world.ours.inspect("a").await.unwrap().unwrap();
    assert_eq!(info.queue, Some(1), "one of them asks");
}

#[tokio::test]
async fn a_caller_that_is_dropped_after_its_turn_has_passed_leaves_nothing() {
    let world = World::new();
    for handoff in [true, false] {
        let lock = world.ours.lock("a").handoff(handoff);
        let late = released_to_the_second(&lock, 10).await;
        world.pass(ms(400)).await;
        drop(late);
        world.settled().await;
        assert!(is_theirs_to_take(&world).await);
        assert!(lock.try_acquire().await.unwrap().is_some());
    }
    let (held, waiting) = held_and_waited_for(&world.ours).await;
    drop((held, waiting));
    world.settled().await;
    world.ours.shutdown().await;
}

/// It waited for a run, which has ended since.
#[tokio::test]
async fn a_release_that_nobody_polls_keeps_the_lock_for_one_ttl_at_most() {
    let world = World::new();
    let held = world.ours.lock("a").acquire().await.unwrap();
    let executor = held.executor();
    let goes_on = Arc::new(Notify::new());
    let until = Arc::clone(&goes_on);
    let mut run = Box::pin(executor.guarded_async(async move |_tx| {
        until.notified().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    let mut release = Box::pin(held.release());
    assert!(poll_once(&mut release).await.is_pending());
    world.pass(secs(20)).await;
    assert!(!is_theirs_to_take(&world).await, "a run is in progress");
    goes_on.notify_one();
    assert!(run.await.is_err(), "its gate is closed");
    world.pass(secs(11)).await;
    assert!(is_theirs_to_take(&world).await);
    assert!(world.ours.lock("a").try_acquire().await.unwrap().is_some());
    drop(release);
}

/// A fence that never answers.
#[derive(Debug)]
struct Silent;

impl Fence for Silent {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_acquire_that_is_not_polled_while_its_fence_is_raised_keeps_nobody_out() {
    let world = World::new();
    let lock = world.ours.lock("a").fence(Silent);
    let mut raising = Box::pin(lock.acquire());
    assert!(poll_once(&mut raising).await.is_pending());
    assert!(!is_theirs_to_take(&world).await);
    world.pass(secs(3)).await;
    assert!(is_theirs_to_take(&world).await);
}

#[tokio::test]
async fn an_acquire_of_several_keys_that_is_not_polled_keeps_none_of_them_past_its_wait() {
    let world = World::new();
    let theirs = world.theirs.lock("b").acquire().await.unwrap();
    let both = world.ours.lock_all(["a", "b"]);
    let mut waiting = Box::pin(both.acquire_within(secs(15)));
    assert!(poll_once(&mut waiting).await.is_pending());
    world.pass(secs(14)).await;
    assert!(!is_theirs_to_take(&world).await, "it is renewed");
    world.pass(secs(4)).await;
    assert!(is_theirs_to_take(&world).await);
    theirs.release().await.unwrap();
    // With both, nothing ends them any more.
    let held = both.acquire_within(secs(3)).await.unwrap().unwrap();
    drop(waiting);
    world.pass(secs(30)).await;
    assert!(!held.remaining().is_zero());
}

/// The turn was that of a caller that waits for the store for longer than a called one may take to
/// come.
#[tokio::test]
async fn a_turn_that_nobody_takes_passes_as_early_after_a_caller_that_waited_for_long() {
    let world = World::new();
    let theirs = world.theirs.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let mut first = Box::pin(lock.acquire());
    assert!(poll_once(&mut first).await.is_pending());
    let mut second = Box::pin(lock.acquire());
    assert!(poll_once(&mut second).await.is_pending());
    let mut third = Box::pin(lock.acquire());
    assert!(poll_once(&mut third).await.is_pending());
    world.settled().await;
    drop(first);
    theirs.release().await.unwrap();
    world.pass(ms(400)).await;
    let Poll::Ready(held) = poll_once(&mut third).await else {
        panic!("the second was called, and is not polled");
    };
    held.unwrap().release().await.unwrap();
    drop(second);
}

#[tokio::test]
async fn without_handoff_time_one_caller_of_a_process_asks_the_store() {
    let mut settings = leasehold::Settings::default();
    settings.handoff_time = ms(0);
    let world = World::with(settings);
    let lock = world.ours.lock("a");
    let held = lock.acquire().await.unwrap();
    let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(lock.acquire())).collect();
    for caller in &mut waiting {
        assert!(poll_once(caller).await.is_pending());
    }
    let fair = world.theirs.lock("a").fair();
    let mut theirs = Box::pin(fair.acquire());
    assert!(poll_once(&mut theirs).await.is_pending());
    held.release().await.unwrap();
    world.settled().await;
    let theirs = theirs.await.unwrap();
    for caller in &mut waiting {
        assert!(poll_once(caller).await.is_pending());
    }
    let info = world.ours.inspect("a").await.unwrap().unwrap();
    assert_eq!(info.queue, Some(1));
    drop(theirs);
}
