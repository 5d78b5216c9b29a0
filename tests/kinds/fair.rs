//! Fair locks: first come, first served over processes.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::ManualClock;
use leasehold::store::{Acquired, Claim, Grant, Label, MemoryStore, OwnerToken, Store};
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{ErrorKind, Key, LockManager};
use proptest::prelude::*;

use crate::support::{World, ms, poll_once, secs, while_time_passes};

#[tokio::test]
async fn callers_of_two_processes_are_served_in_the_order_of_their_arrival() {
    let world = World::new();
    let first = world.ours.lock("a").fair().acquire().await.unwrap();
    let locks: Vec<_> = (0..6)
        .map(|n| [&world.ours, &world.theirs][n % 2].lock("a").fair())
        .collect();
    let mut waiting = VecDeque::new();
    for lock in &locks {
        let mut acquire = Box::pin(lock.acquire());
        assert!(poll_once(&mut acquire).await.is_pending());
        waiting.push_back(acquire);
    }
    let record = world.ours.inspect("a").await.unwrap().unwrap();
    assert_eq!((record.holders, record.queue), (1, Some(6)));
    let mut held = first;
    while let Some(head) = waiting.pop_front() {
        let token = held.token();
        let _ = held.release().await;
        for later in waiting.iter_mut().rev() {
            assert!(poll_once(later).await.is_pending());
        }
        held = while_time_passes(&world, secs(3), head).await.unwrap();
        // Each has a grant of its own: nothing is handed on.
        assert!(held.token() > token);
    }
}

#[tokio::test]
async fn a_caller_who_gives_up_gives_up_its_place_in_the_store() {
    let world = World::new();
    let held = world.ours.lock("a").fair().acquire().await.unwrap();
    let lock = world.theirs.lock("a").fair();
    let mut gives_up = Box::pin(lock.acquire());
    assert!(poll_once(&mut gives_up).await.is_pending());
    drop(gives_up);
    assert!(lock.try_acquire().await.unwrap().is_none());
    world.settled().await;
    let record = world.ours.inspect("a").await.unwrap().unwrap();
    assert_eq!(record.queue, Some(0));
    let _ = held.release().await;
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_process_that_died_in_the_queue_is_skipped_when_its_places_end() {
    let world = World::new();
    let held = world.ours.lock("a").fair().acquire().await.unwrap();
    for _ in 0..20 {
        let mut dead = claim("a");
        dead.place_ttl = secs(4);
        assert!(matches!(
            world.store.acquire(&dead).await.unwrap(),
            Acquired::Busy { .. }
        ));
    }
    let lock = world.theirs.lock("a").fair();
    let mut waiting = Box::pin(lock.acquire_within(secs(20)));
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = held.release().await;
    // All twenty together cost the time of one.
    let next = while_time_passes(&world, secs(6), waiting).await.unwrap();
    assert!(next.is_some());
}

#[tokio::test]
async fn who_waits_for_long_keeps_its_place() {
    let world = World::new();
    let held = world.ours.lock("a").fair().acquire().await.unwrap();
    let lock = world.theirs.lock("a").fair();
    let mut first = Box::pin(lock.acquire_within(secs(100)));
    assert!(poll_once(&mut first).await.is_pending());
    let mut later = Box::pin(lock.acquire_within(secs(100)));
    for _ in 0..200 {
        world.clock.advance(ms(100));
        world.settled().await;
        assert!(poll_once(&mut first).await.is_pending());
        assert!(poll_once(&mut later).await.is_pending());
    }
    let record = world.ours.inspect("a").await.unwrap().unwrap();
    assert_eq!(record.queue, Some(2));
    let _ = held.release().await;
    assert!(poll_once(&mut later).await.is_pending());
    let held = while_time_passes(&world, secs(3), first).await.unwrap();
    assert!(held.is_some());
}

#[tokio::test]
async fn a_waiter_whose_requests_are_lost_for_a_while_keeps_its_place() {
    let world = World::new();
    let network = Faulty::new(world.store.clone(), world.clock.clone(), 7);
    let far = LockManager::builder(network.clone()).clock(world.clock.clone());
    let far = far.build().unwrap();
    let held = world.ours.lock("a").fair().acquire().await.unwrap();
    let (first, later) = (far.lock("a").fair(), world.theirs.lock("a").fair());
    let mut first = Box::pin(first.acquire());
    assert!(poll_once(&mut first).await.is_pending());
    let mut later = Box::pin(later.acquire());
    assert!(poll_once(&mut later).await.is_pending());
    network.block(Operation::Acquire);
    for _ in 0..25 {
        world.clock.advance(ms(100));
        world.settled().await;
        assert!(poll_once(&mut first).await.is_pending());
        assert!(poll_once(&mut later).await.is_pending());
    }
    assert!(network.counts(Operation::Acquire).lost_before > 0);
    network.unblock(Operation::Acquire);
    let _ = held.release().await;
    for _ in 0..10 {
        assert!(poll_once(&mut later).await.is_pending());
        world.clock.advance(ms(10));
    }
    let held = while_time_passes(&world, secs(3), first).await.unwrap();
    let _ = held.release().await;
    let _held = while_time_passes(&world, secs(3), later).await.unwrap();
}

#[tokio::test]
async fn an_asking_that_arrives_after_the_release_holds_nothing() {
    let world = World::new();
    let network = Faulty::new(world.store.clone(), world.clock.clone(), 7);
    let far = LockManager::builder(network.clone()).clock(world.clock.clone());
    let far = far.build().unwrap();
    let mut faults = Faults::default();
    faults.late = 1.0;
    network.set(faults).unwrap();
    let lock = far.lock("a").fair();
    let mut asking = Box::pin(lock.acquire());
    assert!(poll_once(&mut asking).await.is_pending());
    network.set(Faults::default()).unwrap();
    let guard = while_time_passes(&world, secs(3), asking).await.unwrap();
    assert_eq!(network.counts(Operation::Acquire).late, 1);
    let _ = guard.release().await;
    far.settled().await;
    network.deliver().await;
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn a_plain_caller_does_not_pass_those_who_queue() {
    let world = World::new();
    let held = world.ours.lock("a").fair().acquire().await.unwrap();
    let lock = world.theirs.lock("a").fair();
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = held.release().await;
    assert!(world.ours.lock("a").try_acquire().await.unwrap().is_none());
    let _held = while_time_passes(&world, secs(3), waiting).await.unwrap();
}

#[tokio::test]
async fn a_store_without_a_queue_refuses_and_says_which_store_has_one() {
    let clock = ManualClock::new();
    let store = crate::plain::plain(MemoryStore::with_clock(clock.clone()));
    let locks = LockManager::builder(store).clock(clock).build().unwrap();
    let error = locks.lock("a").fair().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("MemoryStore"), "{error}");
    assert!(locks.lock("a").acquire().await.is_ok());
}

/// A waiter that asks this often does not lose what it was handed.
const WITHIN_A_HANDOVER: Duration = Duration::from_millis(900);

fn claim(key: &str) -> Claim {
    let label = Label::parse("waiter").unwrap();
    let owner = OwnerToken::generate().unwrap();
    let mut claim = Claim::new(Key::parse(key).unwrap(), owner, label, secs(10));
    claim.place_ttl = secs(3);
    claim
}

/// The memory store never waits.
fn ask(store: &MemoryStore, claim: &Claim) -> Option<Grant> {
    match store.acquire(claim).now_or_never().unwrap().unwrap() {
        Acquired::Granted(grant) => Some(grant),
        _ => None,
    }
}

proptest! {
    /// While nobody dies, grants come in the order of arrival, however often and in whatever order
    /// the waiters ask.
    #[test]
    fn grants_come_in_the_order_of_arrival_while_nobody_dies(
        steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 1..200),
    ) {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let mut waiting: VecDeque<Claim> = VecDeque::new();
        let mut holder: Option<Grant> = None;
        for (step, index) in steps {
            match step {
                0 => {
                    let new = claim("a");
                    match ask(&store, &new) {
                        Some(grant) => {
                            prop_assert!(holder.is_none() && waiting.is_empty());
                            holder = Some(grant);
                        }
                        None => waiting.push_back(new),
                    }
                }
                1 if !waiting.is_empty() => {
                    let index = index.index(waiting.len());
                    if let Some(grant) = ask(&store, &waiting[index]) {
                        prop_assert_eq!(index, 0, "somebody stood before");
                        prop_assert!(holder.is_none());
                        holder = Some(grant);
                        waiting.pop_front();
                    } else {
                        prop_assert!(index > 0 || holder.is_some(), "the head of a free key waits");
                    }
                }
                2 => {
                    if let Some(grant) = holder.take() {
                        let _ = store.release(&grant).now_or_never().unwrap();
                    }
                }
                _ => {
                    // Alive is who asks within its place's time and within a handover's, or renews.
                    clock.advance(WITHIN_A_HANDOVER);
                    for waiter in &waiting {
                        let granted = ask(&store, waiter);
                        prop_assert!(granted.is_none() || holder.is_none());
                        if granted.is_some() {
                            holder = granted;
                        }
                    }
                    waiting.retain(|w| holder.as_ref().is_none_or(|h| h.claim.owner != w.owner));
                    if let Some(grant) = &holder {
                        let _ = store.renew(std::slice::from_ref(grant)).now_or_never().unwrap();
                    }
                }
            }
        }
    }

    /// Heads, holders and others die at random; whoever stays alive is served, in a time that does
    /// not depend on how many of them died.
    #[test]
    fn no_waiter_starves_when_heads_die_at_random(deaths in prop::collection::vec(any::<bool>(), 1..40)) {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let holder = claim("a");
        prop_assert!(ask(&store, &holder).is_some());
        let waiters: Vec<_> = deaths.iter().map(|dies| (claim("a"), *dies)).collect();
        for (waiter, _) in &waiters {
            prop_assert!(ask(&store, waiter).is_none());
        }
        let mut alive: VecDeque<_> =
            waiters.iter().filter(|(_, dies)| !dies).map(|(waiter, _)| waiter).collect();
        // The holder is dead too: one ttl, and one place at most, before the first is served; then
        // one after the other.
        for _ in 0..15 + alive.len() {
            clock.advance(WITHIN_A_HANDOVER);
            let mut served = None;
            for (index, waiter) in alive.iter().enumerate() {
                if let Some(grant) = ask(&store, waiter) {
                    prop_assert_eq!(index, 0);
                    prop_assert!(served.is_none());
                    served = Some(grant);
                }
            }
            if let Some(grant) = served {
                alive.pop_front();
                let _ = store.release(&grant).now_or_never().unwrap();
            }
        }
        prop_assert!(alive.is_empty(), "{} starved", alive.len());
    }
}
