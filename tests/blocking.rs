//! Locks on threads without a runtime.
#![allow(clippy::unwrap_used)]

mod support;

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

#[test]
fn every_kind_of_lock_is_held_without_a_runtime() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let reader = locks.block_on(locks.read_write("a").read()).unwrap();
    let reader = reader.unwrap();
    assert!(locks.lock("a").blocking().try_acquire().unwrap().is_none());
    locks.block_on(reader.release()).unwrap().unwrap();

    let both = locks.block_on(locks.lock_all(["a", "b"]).acquire());
    locks
        .block_on(both.unwrap().unwrap().release())
        .unwrap()
        .unwrap();
    let slot = locks.block_on(locks.semaphore("c", 1).acquire());
    locks
        .block_on(slot.unwrap().unwrap().release())
        .unwrap()
        .unwrap();
    let term = locks.block_on(locks.election("d").campaign("host-a"));
    locks
        .block_on(term.unwrap().unwrap().resign())
        .unwrap()
        .unwrap();
}
