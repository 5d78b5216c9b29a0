//! What a manager reports to a probe: whether its store answers, which holds are at risk, and how
//! long nothing is granted.

use leasehold::LockManager;
use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
use leasehold::testing::{Faults, Faulty, Operation};

use crate::support::{ms, poll_once, secs};

#[tokio::test]
async fn health_answers_a_probe_before_during_and_after_an_outage_of_the_store() {
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(memory.clone(), clock.clone(), 7);
    let locks = LockManager::builder(network.clone()).clock(clock.clone());
    let locks = locks.build().unwrap();
    let pass = async |tenths: u32| {
        for _ in 0..tenths {
            clock.advance(ms(100));
            locks.settled().await;
        }
    };

    let health = locks.health();
    assert_eq!(health.is_store_reachable, None, "never asked");
    assert_eq!((health.last_answer, health.not_ready_for), (None, None));

    memory.restart(secs(5));
    assert!(locks.lock("a").try_acquire().await.is_err());
    let health = locks.health();
    assert_eq!(health.is_store_reachable, Some(true));
    assert!(health.not_ready_for.unwrap() > secs(4), "{health:?}");

    clock.advance(secs(5));
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(locks.health().not_ready_for, None);
    pass(50).await;
    let health = locks.health();
    assert_eq!((health.held, health.at_risk), (1, 0));
    assert!(
        health.last_answer.unwrap() < secs(4),
        "a renewal: {health:?}"
    );

    network.block(Operation::Renew);
    pass(50).await;
    let health = locks.health();
    assert_eq!((health.held, health.at_risk), (1, 1));
    assert_eq!(health.is_store_reachable, Some(false));
    assert!(health.last_answer.unwrap() > secs(3), "{health:?}");

    network.unblock(Operation::Renew);
    pass(20).await;
    let health = locks.health();
    assert_eq!((health.held, health.at_risk), (1, 0));
    assert_eq!(health.is_store_reachable, Some(true));
    assert!(guard.lease().is_live());
}

/// A caller whose wait is nearly over asks once more and does not wait for the answer. That says
/// nothing of the store.
#[tokio::test]
async fn a_caller_without_patience_does_not_make_the_store_unreachable() {
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(memory.clone(), clock.clone(), 7);
    let builder = |store: Faulty<MemoryStore>| LockManager::builder(store).clock(clock.clone());
    let locks = builder(network.clone()).build().unwrap();
    let theirs = LockManager::builder(memory).clock(clock.clone());
    let theirs = theirs.build().unwrap();
    let _held = theirs.lock("a").acquire().await.unwrap();
    let mut slow = Faults::default();
    (slow.delayed, slow.delay) = (1.0, ms(200));
    network.set(slow).unwrap();
    for wait in [5, 300, 1_000] {
        let lock = locks.lock("a");
        let mut waiting = Box::pin(lock.acquire_within(ms(wait)));
        while poll_once(&mut waiting).await.is_pending() {
            clock.advance(ms(1));
            locks.settled().await;
        }
        let health = locks.health();
        assert_ne!(
            health.is_store_reachable,
            Some(false),
            "{wait} ms: {health:?}"
        );
    }
    // One that had its full time and got no answer does.
    network.stall(Operation::Acquire);
    let other = locks.lock("b");
    let mut waiting = Box::pin(other.acquire_within(secs(60)));
    for _ in 0..100 {
        assert!(poll_once(&mut waiting).await.is_pending());
        clock.advance(ms(100));
        locks.settled().await;
    }
    assert_eq!(locks.health().is_store_reachable, Some(false));
}
