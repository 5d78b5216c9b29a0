//! Locks on threads without a runtime.
#![allow(clippy::unwrap_used)]

mod support;

use leasehold::reentrant::Scope;
use leasehold::store::{MemoryStore, Released};
use leasehold::{ErrorKind, LockManager};
use support::ms;

#[test]
fn threads_without_a_runtime_take_turns() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let counter = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..25 {
                    let guard = locks.lock("a").blocking().acquire().unwrap();
                    // Not an addition: two holders at once would lose one.
                    let seen = counter.load(std::sync::atomic::Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
                    assert!(matches!(guard.release(), Ok(Released::Released)));
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 100);
}

#[test]
fn a_busy_lock_is_none_here_too() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let lock = locks.lock("a").blocking();
    let _guard = lock.acquire().unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(lock.acquire_within(ms(5)).unwrap().is_none());
}

#[test]
fn a_release_waits_for_a_run_no_longer_than_it_may() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let guard = locks.lock("a").blocking().acquire().unwrap();
    let executor = guard.executor();
    let released = executor.guarded(|_| Ok(guard.release_within(ms(1))));
    let error = released.unwrap_err();
    assert!(error.to_string().contains("released"), "{error}");

    let guard = locks.lock("b").blocking().acquire().unwrap();
    let released = guard.release_within(ms(60_000)).unwrap();
    assert!(matches!(released, Released::Released));
}

#[tokio::test]
async fn a_blocking_call_inside_a_runtime_is_refused_and_loses_nothing() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let lock = locks.lock("a").blocking();
    assert_eq!(lock.acquire().unwrap_err().kind(), ErrorKind::Invalid);
    let guard = std::thread::scope(|threads| threads.spawn(|| lock.acquire()).join().unwrap());
    let released = guard.unwrap().release();
    assert_eq!(released.unwrap_err().kind(), ErrorKind::Invalid);
    let refused = locks.block_on(locks.semaphore("a", 1).acquire());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(
        locks.lock("a").acquire().await.is_ok(),
        "it was released in the background"
    );
}

/// A kind is held, is busy for others meanwhile, and is free after its release.
fn is_held<G>(
    locks: &LockManager,
    key: &str,
    hold: impl FnOnce() -> Result<G, leasehold::Error>,
    release: impl FnOnce(G) -> bool,
) {
    let other = locks.lock(key).blocking();
    let guard = hold().unwrap();
    assert!(other.try_acquire().unwrap().is_none(), "{key} is not held");
    assert_eq!(
        other.acquire_now().unwrap_err().kind(),
        ErrorKind::Contended
    );
    assert!(release(guard), "{key} was not released");
    let next = other.try_acquire().unwrap();
    next.unwrap_or_else(|| panic!("{key} is not free"))
        .release()
        .unwrap();
}

#[test]
fn every_kind_of_lock_is_held_without_a_runtime() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let is_released = |released| matches!(released, Ok(Released::Released));
    let is_left = |released| matches!(released, Ok(Some(Released::Released)));

    let lock = locks.lock("exclusive").blocking();
    is_held(
        &locks,
        "exclusive",
        || lock.acquire(),
        |guard| is_released(guard.release()),
    );
    let lock = locks.lock("fair").fair().blocking();
    is_held(
        &locks,
        "fair",
        || lock.acquire_now(),
        |guard| is_released(guard.release()),
    );

    let lock = locks.read_write("read").blocking();
    is_held(
        &locks,
        "read",
        || lock.read(),
        |guard| is_released(guard.release()),
    );
    let lock = locks.read_write("write").blocking();
    is_held(
        &locks,
        "write",
        || lock.write(),
        |guard| is_released(guard.release()),
    );
    let downgrade = || lock.write()?.downgrade();
    is_held(&locks, "write", downgrade, |guard| {
        is_released(guard.release())
    });
    lock.try_write().unwrap().unwrap().release().unwrap();
    lock.try_read().unwrap().unwrap().release().unwrap();

    let scope = Scope::new();
    let lock = locks.reentrant("reentrant").blocking();
    is_held(
        &locks,
        "reentrant",
        || lock.acquire(&scope),
        |guard| {
            let inner = lock.try_acquire(&scope).unwrap().unwrap();
            inner.release().unwrap().is_none() && is_left(guard.release())
        },
    );
    let lock = locks.read_write("reentrant/write").reentrant().blocking();
    is_held(
        &locks,
        "reentrant/write",
        || lock.write(&scope),
        |guard| {
            let reader = lock.read(&scope).unwrap();
            guard.release().unwrap().is_none() && is_left(reader.release())
        },
    );

    let lock = locks.lock_all(["both", "and"]).blocking();
    is_held(
        &locks,
        "both",
        || lock.acquire(),
        |guard| guard.release().unwrap().len() == 2,
    );
    let lock = locks.semaphore("slots", 1).blocking();
    is_held(
        &locks,
        "slots/slot-0",
        || lock.acquire(),
        |permit| is_released(permit.release()),
    );
    let lock = locks.election("office").blocking();
    is_held(
        &locks,
        "office",
        || lock.campaign("host-a"),
        |term| is_released(term.resign()),
    );
}
