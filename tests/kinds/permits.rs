//! Permits: as many together as there are, all or nothing, first come, first served.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::permits::{MAX_PERMITS, Permits, PermitsGuard};
use leasehold::store::{Acquired, Claim, Label, LockMode, MemoryStore, OwnerToken, Share, Store};
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{Error, ErrorKind, Key, LockManager, Settings};

use crate::dice::Dice;
use crate::support::{Far, World, ms, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::leaves_nothing_whenever_dropped;

const KEY: &str = "pool";

/// A request of a process that takes part by the store alone, and never renews.
async fn ask_once(world: &World, permits: u32, of: u32) -> bool {
    let owner = OwnerToken::generate().unwrap();
    let (key, label) = (Key::parse(KEY).unwrap(), Label::parse("dead").unwrap());
    let mut claim = Claim::new(key, owner, label, secs(10));
    claim.mode = LockMode::Read;
    claim.share = Some(Share { permits, of });
    claim.place_ttl = secs(0);
    let answer = world.store.acquire(&claim).await.unwrap();
    matches!(answer, Acquired::Granted(_))
}

type Acquiring<'a> = Pin<Box<dyn Future<Output = Result<Option<PermitsGuard>, Error>> + 'a>>;

#[tokio::test]
async fn holders_of_all_processes_have_together_at_most_the_size() {
    let world = World::new();
    let (ours, theirs) = (world.ours.permits(KEY, 5), world.theirs.permits(KEY, 5));
    let three = ours.acquire_many(3).await.unwrap();
    let two = theirs.acquire_many(2).await.unwrap();
    assert_eq!((three.permits(), two.permits()), (3, 2));
    assert_ne!(three.token(), two.token());
    assert!(ours.try_acquire().await.unwrap().is_none());
    let _ = three.release().await;
    assert!(theirs.try_acquire_many(4).await.unwrap().is_none());
    let rest = theirs.try_acquire_many(3).await.unwrap().unwrap();
    assert!(rest.guarded(|tx| Ok(tx.check()?)).is_ok());
    assert_eq!(two.permits(), 2);
}

/// What each process believes, with every kind of end: releases, drops, processes that die, calls
/// that are given up, and requests that are lost, late or executed twice.
#[tokio::test]
async fn live_leases_never_have_more_than_there_are_whatever_happens() {
    const SIZE: u32 = 7;
    for seed in 0..12 {
        let mut world = World::new();
        let networks =
            [0, 1].map(|n| Faulty::new(world.store.clone(), world.clock.clone(), seed + n));
        if seed % 2 == 1 {
            let faults = Faults::each(0.04, ms(300));
            let behind = |network: &Faulty<MemoryStore>| {
                network.set(faults.clone()).unwrap();
                let builder = LockManager::builder(network.clone()).clock(world.clock.clone());
                builder.build().unwrap()
            };
            (world.ours, world.theirs) = (behind(&networks[0]), behind(&networks[1]));
        }
        let mut dice = Dice::new(seed, 1);
        let pools = [&world.ours, &world.theirs].map(|locks| locks.permits(KEY, SIZE));
        let mut waiting: Vec<Acquiring<'_>> = Vec::new();
        let mut held: Vec<PermitsGuard> = Vec::new();
        // Until when the store counts a dead process, and for how much.
        let mut dead: Vec<(Duration, u32)> = Vec::new();
        let (start, mut most) = (world.now(), 0);
        let now = || world.now().since(&start);
        for _ in 0..400 {
            let permits = 1 + dice.below(SIZE as usize) as u32;
            match dice.below(10) {
                0..=3 if waiting.len() < 20 => {
                    let pool = &pools[dice.below(2)];
                    let wait = secs(dice.below(30) as u64);
                    waiting.push(Box::pin(pool.acquire_many_within(permits, wait)));
                }
                4 if !waiting.is_empty() => drop(waiting.swap_remove(dice.below(waiting.len()))),
                5 | 6 if !held.is_empty() => {
                    let released = held.swap_remove(dice.below(held.len())).release();
                    let _ = while_time_passes(&world, secs(30), Box::pin(released)).await;
                }
                7 if !held.is_empty() => drop(held.swap_remove(dice.below(held.len()))),
                8 => {
                    let until = now() + secs(10);
                    if ask_once(&world, permits, SIZE).await {
                        dead.push((until, permits));
                    }
                }
                _ => world.pass(secs(1)).await,
            }
            let mut still = Vec::new();
            for mut acquire in waiting.drain(..) {
                match poll_once(&mut acquire).await {
                    Poll::Ready(answer) => held.extend(answer.ok().flatten()),
                    Poll::Pending => still.push(acquire),
                }
            }
            waiting = still;
            dead.retain(|(until, _)| *until > now());
            let live = held.iter().filter(|guard| guard.lease().is_live());
            let taken: u32 = live.map(PermitsGuard::permits).sum();
            let taken = taken + dead.iter().map(|(_, permits)| permits).sum::<u32>();
            assert!(taken <= SIZE, "seed={seed}: {taken} of {SIZE}");
            most = most.max(taken);
        }
        assert_eq!(most, SIZE, "seed={seed}: it was never full");
        // Nothing is counted that nobody holds.
        drop((waiting, held));
        for network in &networks {
            network.set(Faults::default()).unwrap();
            network.deliver().await;
        }
        world.pass(secs(25)).await;
        assert!(pools[0].try_acquire_many(SIZE).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn who_wants_many_is_served_before_those_that_came_later_and_want_one() {
    let world = World::new();
    let (ours, theirs) = (world.ours.permits(KEY, 4), world.theirs.permits(KEY, 4));
    let one = ours.acquire().await.unwrap();
    let mut many = Box::pin(theirs.acquire_many(4));
    assert!(poll_once(&mut many).await.is_pending());
    let mut few: Vec<_> = (0..3).map(|_| Box::pin(ours.acquire())).collect();
    for later in &mut few {
        assert!(poll_once(later).await.is_pending());
    }
    assert!(ours.try_acquire().await.unwrap().is_none());
    let _ = one.release().await;
    for later in &mut few {
        assert!(poll_once(later).await.is_pending());
    }
    let many = while_time_passes(&world, secs(2), many).await.unwrap();
    let _ = many.release().await;
    for later in few {
        assert!(while_time_passes(&world, secs(2), later).await.is_ok());
    }
}

#[tokio::test]
async fn two_that_want_more_than_half_take_turns() {
    let world = World::new();
    let (ours, theirs) = (world.ours.permits(KEY, 10), world.theirs.permits(KEY, 10));
    let mut held = ours.acquire_many(6).await.unwrap();
    for n in 0..20 {
        let mut next = Box::pin([&theirs, &ours][n % 2].acquire_many(6));
        assert!(poll_once(&mut next).await.is_pending());
        let _ = held.release().await;
        held = while_time_passes(&world, secs(2), next).await.unwrap();
    }
}

#[tokio::test]
async fn a_growth_serves_whoever_waits() {
    let world = World::new();
    let pool = world.ours.permits(KEY, 2);
    let held = pool.acquire_many(2).await.unwrap();
    let mut waiting = Box::pin(pool.acquire_many(2));
    assert!(poll_once(&mut waiting).await.is_pending());
    pool.clone().resize(4).unwrap();
    let more = while_time_passes(&world, secs(2), waiting).await.unwrap();
    assert_eq!((held.permits() + more.permits(), pool.size()), (4, 4));
    world.settled().await;
    let record = world.ours.inspect(KEY).await.unwrap().unwrap();
    assert_eq!((record.holders, record.queue), (2, Some(0)));
}

#[tokio::test]
async fn a_smaller_size_takes_nothing_away_and_waits_for_ends() {
    let world = World::new();
    let pool = world.ours.permits(KEY, 6);
    let (four, two) = (
        pool.acquire_many(4).await.unwrap(),
        pool.acquire_many(2).await.unwrap(),
    );
    let mut waiting = Box::pin(pool.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    pool.resize(3).unwrap();
    world.pass(secs(20)).await;
    assert!(four.lease().is_live() && two.lease().is_live());
    let _ = two.release().await;
    world.settled().await;
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = four.release().await;
    assert!(while_time_passes(&world, secs(2), waiting).await.is_ok());
    assert!(pool.try_acquire_many(2).await.unwrap().is_some());
    let too_many = pool.acquire_many(4).await.unwrap_err();
    assert_eq!(too_many.kind(), ErrorKind::Invalid);
}

/// The store handed the permits over before the size changed, and the caller learns of both at
/// once.
#[tokio::test]
async fn no_call_returns_permits_of_a_larger_size_after_the_change() {
    let world = World::new();
    let pool = world.ours.permits(KEY, 6);
    let (kept, leaving) = (
        pool.acquire_many(3).await.unwrap(),
        pool.acquire_many(3).await.unwrap(),
    );
    let mut waiting = Box::pin(pool.acquire_many(3));
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = leaving.release().await;
    pool.resize(5).unwrap();
    for _ in 0..50 {
        assert!(poll_once(&mut waiting).await.is_pending());
        world.clock.advance(secs(1) / 10);
        world.settled().await;
    }
    drop(kept);
    assert!(while_time_passes(&world, secs(2), waiting).await.is_ok());
}

#[tokio::test]
async fn a_process_that_keeps_some_makes_the_size_smaller_for_all() {
    let world = World::new();
    let (ours, theirs) = (world.ours.permits(KEY, 8), world.theirs.permits(KEY, 8));
    let kept = ours.acquire_many(5).await.unwrap();
    assert!(theirs.try_acquire_many(4).await.unwrap().is_none());
    let three = theirs.try_acquire_many(3).await.unwrap();
    world.pass(secs(30)).await;
    assert!(kept.lease().is_live() && three.is_some());
}

async fn requests(far: &Far) -> u64 {
    far.locks.settled().await;
    let all = [
        Operation::Acquire,
        Operation::Withdraw,
        Operation::Release,
        Operation::Subscribe,
        Operation::Inspect,
        Operation::List,
    ];
    all.map(|one| far.network.counts(one).asked).iter().sum()
}

/// The number of requests, of a small pool and of a huge one, with as many holders in the way.
#[tokio::test]
async fn a_request_costs_the_same_whatever_the_size() {
    let mut costs = Vec::new();
    for size in [8, MAX_PERMITS] {
        let far = Far::new();
        let pool = far.locks.permits(KEY, size);
        let before = requests(&far).await;
        let all = pool.acquire_many(size).await.unwrap();
        assert!(pool.try_acquire().await.unwrap().is_none());
        let _ = all.release().await;
        let _ = pool.acquire().await.unwrap().release().await;
        costs.push(requests(&far).await - before);
    }
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn ten_thousand_hold_one_permit_each_and_the_next_one_waits() {
    const SIZE: u32 = 10_000;
    let world = World::new();
    let (ours, theirs) = (
        world.ours.permits(KEY, SIZE),
        world.theirs.permits(KEY, SIZE),
    );
    let mut held = Vec::new();
    for _ in 0..SIZE {
        held.push(ours.acquire().await.unwrap());
    }
    let mut waiting = Box::pin(theirs.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    drop(held.swap_remove(4_711).release().await);
    assert!(while_time_passes(&world, secs(2), waiting).await.is_ok());
}

#[tokio::test]
async fn a_dead_holders_permits_are_free_when_its_ttl_is_over_and_others_hold_on() {
    let world = World::new();
    let pool = world.ours.permits(KEY, 4);
    assert!(ask_once(&world, 3, 4).await);
    let live = pool.acquire().await.unwrap();
    assert!(pool.try_acquire_many(3).await.unwrap().is_none());
    world.pass(secs(11)).await;
    assert!(pool.try_acquire_many(3).await.unwrap().is_some());
    assert!(live.lease().is_live());
}

#[tokio::test]
async fn a_wait_in_vain_names_what_was_asked_for() {
    let world = World::new();
    let (ours, theirs) = (world.ours.permits(KEY, 3), world.theirs.permits(KEY, 3));
    let _held = ours.acquire_many(2).await.unwrap();
    let wait = world.theirs.settings().wait;
    let error = while_time_passes(&world, wait + secs(1), theirs.acquire_many(2)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    let expected = "key=pool permits=2 of=3; holders=1 waiting=0";
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn bad_input_is_an_error_of_every_call() {
    let world = World::new();
    let kind = |answer: Result<PermitsGuard, Error>| answer.unwrap_err().kind();
    for (pool, permits) in [
        (world.ours.permits(KEY, 0), 1),
        (world.ours.permits(KEY, MAX_PERMITS + 1), 1),
        (world.ours.permits("s//t", 2), 1),
        (world.ours.permits(KEY, 2), 0),
        (world.ours.permits(KEY, 2), 3),
    ] {
        let is_invalid = |pool: &Permits| pool.resize(0).unwrap_err().kind() == ErrorKind::Invalid;
        assert!(is_invalid(&pool));
        assert_eq!(kind(pool.acquire_many(permits).await), ErrorKind::Invalid);
    }
    let pool = world.ours.permits(KEY, 2);
    let held = pool.acquire().await.unwrap();
    let inside = held
        .guarded_async(async |_| Ok(kind(pool.acquire().await)))
        .await
        .unwrap();
    assert_eq!(inside.value, ErrorKind::Invalid);
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_await_leaks_nothing() {
    leaves_nothing_whenever_dropped(2, async |locks, times| {
        let pool = locks.permits(KEY, 3);
        let taken = pool.acquire_many(2).await.unwrap();
        let completed = poll_and_drop(times, pool.acquire());
        let _ = taken.release().await;
        completed
    })
    .await;
}

#[tokio::test]
async fn callers_that_wait_count_among_the_waiters() {
    let mut settings = Settings::default();
    settings.max_waiters = 1;
    let world = World::with(settings);
    let pool = world.ours.permits(KEY, 1);
    let _held = world.theirs.permits(KEY, 1).acquire().await.unwrap();
    let mut one = Box::pin(pool.acquire());
    assert!(poll_once(&mut one).await.is_pending());
    let refused = pool.acquire().await.unwrap_err();
    assert!(refused.to_string().contains("max_waiters=1"), "{refused}");
}
