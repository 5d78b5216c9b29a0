//! How a caller comes to hold a lock, waits for one, and gives up.
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::bare_thread::block_on;
use crate::support::{World, ms, no_handoff, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::{leaves_nothing_whenever_dropped, yielding};
use leasehold::clock::{Clock, ManualClock};
use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, MemoryStore, Released, Renewed, Store,
};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Ended, Error, ErrorKind, Key, LockManager, Settings};

#[tokio::test]
async fn an_acquired_lock_is_held_until_it_is_released() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    assert!(guard.lease().is_live());
    assert!(!world.is_theirs_to_take("a").await);
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    let next = world.theirs.lock("a").try_acquire().await.unwrap().unwrap();
    assert!(next.lease().is_live());
}

#[tokio::test]
async fn a_lock_that_is_busy_here_is_busy_without_asking_the_store() {
    let world = World::new();
    let _guard = world.ours.lock("a").acquire().await.unwrap();
    assert!(world.ours.lock("a").try_acquire().await.unwrap().is_none());
    assert!(world.ours.lock("b").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn every_grant_has_a_larger_token() {
    let world = World::with(no_handoff());
    let mut last = None;
    for _ in 0..5 {
        for manager in [&world.ours, &world.theirs] {
            let guard = manager.lock("a").acquire().await.unwrap();
            assert!(Some(guard.token()) > last);
            last = Some(guard.token());
            let _ = guard.release().await;
        }
    }
}

#[tokio::test]
async fn a_release_wakes_who_waits_in_another_process_without_a_poll() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let theirs = world.theirs.lock("a");
    // The clock stands still: only the wake-up can end this wait.
    let (next, released) = tokio::join!(theirs.acquire(), async {
        tokio::task::yield_now().await;
        guard.release().await
    });
    assert!(matches!(released, Ok(Released::Released)));
    assert!(next.unwrap().lease().is_live());
}

#[tokio::test]
async fn a_wait_ends_with_its_budget() {
    let world = World::new();
    let _guard = world.ours.lock("a").acquire().await.unwrap();
    for manager in [&world.ours, &world.theirs] {
        let before = world.clock.clone();
        let lock = manager.lock("a");
        let waited = while_time_passes(&world, secs(3), lock.acquire_within(secs(2))).await;
        assert!(waited.unwrap().is_none());
        drop(before);
    }
}

#[tokio::test]
async fn a_busy_lock_is_busy_though_the_last_look_was_not_answered_in_time() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(store.clone(), clock.clone(), 1);
    let manager = |store: Faulty<MemoryStore>| {
        LockManager::builder(store)
            .clock(clock.clone())
            .build()
            .unwrap()
    };
    let theirs = manager(Faulty::new(store, clock.clone(), 2));
    let ours = manager(network.clone());
    let _held = theirs.lock("a").acquire().await.unwrap();
    let lock = ours.lock("a");
    let mut waiting = Box::pin(lock.acquire_within(ms(1_300)));
    assert!(crate::support::poll_once(&mut waiting).await.is_pending());
    network.stall(Operation::Acquire);
    for _ in 0..14 {
        clock.advance(ms(100));
        theirs.settled().await;
        if let Poll::Ready(answer) = crate::support::poll_once(&mut waiting).await {
            assert!(answer.unwrap().is_none());
            return;
        }
    }
    panic!("the wait did not end with its budget");
}

#[tokio::test]
async fn who_cannot_subscribe_polls_with_pauses() {
    let world = World::new();
    let network = Faulty::new(world.store.clone(), world.clock.clone(), 7);
    let far = LockManager::builder(network.clone()).clock(world.clock.clone());
    let far = far.build().unwrap();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    network.block(Operation::Subscribe);
    let lock = far.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    for _ in 0..100 {
        assert!(poll_once(&mut waiting).await.is_pending());
    }
    let asked = network.counts(Operation::Acquire).asked;
    assert_eq!(asked, 1, "no time has passed");
    let _ = guard.release().await;
    let held = while_time_passes(&world, ms(500), waiting).await;
    assert!(held.unwrap().lease().is_live());
}

/// A store that is not there; how often it was asked, and how often something was withdrawn.
#[derive(Clone, Debug, Default)]
struct Unreachable(Arc<Mutex<[u32; 2]>>);

impl Unreachable {
    fn count<T>(&self, index: usize) -> Result<T, Error> {
        self.0.lock().unwrap()[index] += 1;
        Err(Error::unavailable("it is not there"))
    }
}

impl Store for Unreachable {
    fn name(&self) -> &'static str {
        "unreachable"
    }

    fn capability(&self) -> Capability {
        Capability::least()
    }

    async fn acquire(&self, _: &Claim) -> Result<Acquired, Error> {
        self.count(0)
    }

    async fn renew(&self, _: &[Grant]) -> Vec<Renewed> {
        Vec::new()
    }

    async fn release(&self, _: &Grant) -> Released {
        Released::AlreadyGone
    }

    async fn withdraw(&self, _: &Claim) -> Result<(), Error> {
        self.count(1)
    }

    async fn subscribe(&self, _: &Claim) -> Result<Hint, Error> {
        Err(Error::unavailable("it is not there"))
    }

    async fn inspect(&self, _: &Key) -> Result<Option<LockInfo>, Error> {
        Ok(None)
    }

    async fn list(&self, _: &str) -> Result<Vec<LockInfo>, Error> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_asked_rarely_and_nothing_is_withdrawn() {
    let clock = ManualClock::new();
    let store = Unreachable::default();
    let locks = LockManager::builder(store.clone()).clock(clock.clone());
    let locks = locks.build().unwrap();
    let lock = locks.lock("a");
    let mut waiting = Box::pin(lock.acquire_within(secs(10)));
    let error = loop {
        if let Poll::Ready(answer) = poll_once(&mut waiting).await {
            break answer.unwrap_err();
        }
        clock.advance(ms(5));
        locks.settled().await;
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    locks.settled().await;
    let [asked, withdrawn] = *store.0.lock().unwrap();
    assert!((20..=200).contains(&asked), "{asked} times in ten seconds");
    assert_eq!(withdrawn, 0);
}

#[tokio::test]
async fn acquire_without_a_time_waits_for_as_long_as_the_settings_say() {
    let mut settings = Settings::default();
    settings.wait = secs(4);
    let world = World::with(settings);
    let _guard = world.ours.lock("a").acquire().await.unwrap();
    let lock = world.theirs.lock("a");
    let clock = Clock::from(world.clock.clone());
    let asked = clock.stamp();
    let error = while_time_passes(&world, secs(5), lock.acquire())
        .await
        .unwrap_err();
    let waited = clock.stamp().since(&asked);
    assert!(waited >= secs(4) && waited <= ms(4_200), "{waited:?}");
    assert_eq!(error.kind(), ErrorKind::Contended);
    let text = error.to_string();
    let expected = "the lock was not free within the wait: key=a; held by ";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains(" for 4."), "{text}");
    assert!(text.contains(" s left unless it is renewed"), "{text}");
}

#[tokio::test]
async fn a_lock_that_is_awaited_is_acquired() {
    let world = World::new();
    let guard = world.ours.lock("a").await.unwrap();
    assert!(guard.lease().is_live());
    let error = world.ours.lock("a//b").await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Invalid, None));
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_dead_holders_lock_is_taken_when_its_ttl_is_over() {
    let world = World::new();
    let owner = leasehold::store::OwnerToken::generate().unwrap();
    let label = leasehold::store::Label::parse("dead").unwrap();
    let claim = Claim::new(Key::parse("a").unwrap(), owner, label, secs(5));
    assert!(matches!(
        world.store.acquire(&claim).await.unwrap(),
        Acquired::Granted(_)
    ));
    let lock = world.ours.lock("a");
    let guard = while_time_passes(&world, secs(7), lock.acquire_within(secs(6)))
        .await
        .unwrap();
    assert!(guard.unwrap().lease().is_live());
}

#[tokio::test]
async fn a_malformed_key_is_an_error_of_every_call() {
    let world = World::new();
    let lock = world.ours.lock("a//b");
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        lock.try_acquire().await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(
        world.ours.inspect("").await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

#[tokio::test]
async fn a_ttl_of_ones_own_obeys_the_same_rules() {
    let world = World::new();
    let guard = world.ours.lock("a").ttl(secs(20)).acquire().await.unwrap();
    assert!(guard.remaining() > secs(18));
    for ttl in [Duration::ZERO, ms(1), secs(31)] {
        let error = world.ours.lock("b").ttl(ttl).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{ttl:?}");
    }
}

#[tokio::test]
async fn a_million_callers_are_refused_beyond_the_bound_and_nobody_is_forgotten() {
    let mut settings = Settings::default();
    settings.max_waiters = 100;
    settings.handoff_count = 1_000;
    let world = World::with(settings);
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(lock.acquire())).collect();
    for place in &mut waiting {
        assert!(crate::support::poll_once(place).await.is_pending());
    }
    for _ in 0..1_000_000 {
        let refused = lock.acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Contended);
    }
    let _ = guard.release().await;
    for place in waiting {
        let _ = place.await.unwrap().release().await;
    }
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn the_caller_of_each_key_that_waits_at_the_store_is_one_of_those_that_wait() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    let mut settings = Settings::default();
    settings.max_waiters = 3;
    let world = World::with(settings);
    let mut held = Vec::new();
    for key in KEYS {
        held.push(world.theirs.lock(key).acquire().await.unwrap());
    }
    let ours = KEYS.map(|key| world.ours.lock(key));
    let mut waiting: Vec<_> = ours.iter().map(|lock| Box::pin(lock.acquire())).collect();
    let mut last = waiting.pop().unwrap();
    for caller in &mut waiting {
        assert!(poll_once(caller).await.is_pending());
    }
    let Poll::Ready(Err(refused)) = poll_once(&mut last).await else {
        panic!("it waits too");
    };
    assert_eq!(refused.kind(), ErrorKind::Contended, "{refused}");
    // One that finds its lock free waits for nobody.
    assert!(world.ours.lock("e").acquire().await.is_ok());
    drop(waiting.remove(0));
    last = Box::pin(ours[3].acquire());
    assert!(poll_once(&mut last).await.is_pending());
    for guard in held {
        let _ = guard.release().await;
    }
    for caller in waiting.into_iter().chain([last]) {
        let _ = caller.await.unwrap().release().await;
    }
    // Nobody waits any more, and so nobody is counted.
    let mut held = Vec::new();
    for key in KEYS {
        held.push(world.theirs.lock(key).acquire().await.unwrap());
    }
    for lock in &ours[..3] {
        assert!(poll_once(&mut Box::pin(lock.acquire())).await.is_pending());
    }
}

#[tokio::test]
async fn a_caller_that_waits_for_a_store_that_fails_is_one_of_those_that_wait() {
    let mut settings = Settings::default();
    settings.max_waiters = 1;
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(clock.clone()), clock.clone(), 1);
    store.block(Operation::Acquire);
    let builder = LockManager::builder(store).clock(clock).settings(settings);
    let locks = builder.build().unwrap();
    let (first, second) = (locks.lock("a"), locks.lock("b"));
    let mut waiting = Box::pin(first.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let Poll::Ready(Err(refused)) = poll_once(Box::pin(second.acquire())).await else {
        panic!("it waits too");
    };
    assert_eq!(refused.kind(), ErrorKind::Contended, "{refused}");
}

#[tokio::test]
async fn callers_of_one_process_are_served_in_the_order_of_their_arrival() {
    for settings in [Settings::default(), no_handoff()] {
        let world = World::with(settings);
        let guard = world.ours.lock("a").acquire().await.unwrap();
        let lock = world.ours.lock("a");
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting: Vec<_> = (0..5)
            .map(|n| {
                let (lock, served) = (lock.clone(), Arc::clone(&served));
                Box::pin(async move {
                    let guard = lock.acquire().await.unwrap();
                    served.lock().unwrap().push(n);
                    let _ = guard.release().await;
                })
            })
            .collect();
        for place in &mut waiting {
            assert!(crate::support::poll_once(place).await.is_pending());
        }
        // The third gives up; nobody behind it loses a place.
        drop(waiting.remove(2));
        let _ = guard.release().await;
        for place in waiting {
            place.await;
        }
        assert_eq!(*served.lock().unwrap(), [0, 1, 3, 4]);
        assert!(world.is_free("a").await);
    }
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_await_leaks_nothing() {
    leaves_nothing_whenever_dropped(3, async |locks, times| {
        poll_and_drop(times, locks.lock("a").acquire())
    })
    .await;
}

#[tokio::test]
async fn a_waiting_acquire_that_is_dropped_at_any_await_leaks_nothing() {
    let (_clock, locks) = yielding();
    let guard = locks.lock("a").acquire().await.unwrap();
    // Another manager over another queue would poll; here the local place is what is given up.
    for times in 0..5 {
        assert!(!poll_and_drop(times, locks.lock("a").acquire()));
    }
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_release_that_is_dropped_at_any_await_goes_on_in_the_background() {
    leaves_nothing_whenever_dropped(3, async |locks, times| {
        let guard = locks.lock("a").acquire().await.unwrap();
        poll_and_drop(times, guard.release())
    })
    .await;
}

#[test]
fn a_caller_without_a_runtime_is_served() {
    // The machine's clock: its timers need a runtime, and the manager's is lent for them.
    let store = MemoryStore::new().unwrap();
    let [ours, theirs] = [store.clone(), store].map(|store| LockManager::new(store).unwrap());
    let guard = block_on(ours.lock("a").acquire()).unwrap();
    assert!(
        block_on(ours.lock("a").acquire_within(ms(20)))
            .unwrap()
            .is_none()
    );
    assert!(
        block_on(theirs.lock("a").acquire_within(ms(20)))
            .unwrap()
            .is_none()
    );
    assert!(block_on(ours.inspect("a")).unwrap().is_some());
    assert!(matches!(block_on(guard.release()), Ok(Released::Released)));
}

#[test]
fn to_run_on_the_current_runtime_needs_one() {
    let store = MemoryStore::new().unwrap();
    let error = LockManager::builder(store)
        .on_current_runtime()
        .build()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_manager_runs_on_the_current_runtime_if_asked() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let locks = LockManager::builder(store)
        .clock(clock.clone())
        .on_current_runtime()
        .build()
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    for _ in 0..50 {
        clock.advance(secs(1));
        locks.settled().await;
    }
    assert!(guard.lease().is_live());
    locks.shutdown().await;
    assert!(!guard.lease().is_live());
}

#[test]
fn a_manager_ends_with_the_runtime_that_it_runs_on() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let one = runtime();
    let (locks, guard) = one.block_on(async {
        let store = MemoryStore::with_clock(ManualClock::new());
        let locks = LockManager::builder(store)
            .clock(ManualClock::new())
            .on_current_runtime()
            .build()
            .unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        (locks, guard)
    });
    drop(one);
    runtime().block_on(async {
        assert_eq!(guard.lost().await, Ended::Closed);
        assert!(!guard.lease().is_live());
        drop(guard);
        for key in ["a", "b"] {
            let error = locks.lock(key).acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
    });
}
