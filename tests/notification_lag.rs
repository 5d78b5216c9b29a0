//! The scenario that the whole idea comes from: client A holds the lock, the news of its loss
//! reaches A's worker late, and client B has the lock by then. Once with a worker that waits for
//! the news, once guarded, once guarded and fenced.
#![allow(clippy::unwrap_used)]

#[path = "../examples/support/register.rs"]
mod register;
mod support;

use std::sync::Arc;

use leasehold::clock::ManualClock;
use leasehold::run::{Applied, CommitPermit, CommitProof, EffectError};
use leasehold::store::MemoryStore;
use leasehold::testing::{Faulty, Operation};
use leasehold::{Ended, LockGuard, LockManager, RunError};
use register::{Register, Tally};
use support::{ms, secs};

/// A's heartbeats are blocked; A's lease is over; B holds the lock and has entered.
struct Scene {
    clock: ManualClock,
    a: LockGuard,
    a_locks: LockManager,
    b_locks: LockManager,
    register: Arc<Register>,
}

impl Scene {
    async fn begin() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let network = Faulty::new(store.clone(), clock.clone(), 1);
        let steer = network.clone();
        let a_locks = LockManager::builder(network)
            .clock(clock.clone())
            .build()
            .unwrap();
        let b_locks = LockManager::builder(store)
            .clock(clock.clone())
            .build()
            .unwrap();
        let a = a_locks.lock("r").acquire().await.unwrap();
        steer.block(Operation::Renew);
        let register = Arc::new(Register::default());
        register.enter(a.token());
        register.raise(a.token());
        Self {
            clock,
            a,
            a_locks,
            b_locks,
            register,
        }
    }

    /// The time of A's hold passes, and B takes the lock. A's own manager may be notified, or stay
    /// as busy as it is.
    async fn b_enters(&self) -> LockGuard {
        enter(&self.clock, &self.b_locks, &self.register).await
    }
}

fn tally(writes: u64, over_the_next_holder: u64) -> Tally {
    Tally {
        writes,
        over_the_next_holder,
    }
}

async fn enter(clock: &ManualClock, locks: &LockManager, register: &Register) -> LockGuard {
    clock.advance(secs(10));
    let b = locks
        .lock("r")
        .try_acquire()
        .await
        .unwrap()
        .expect("A's ttl is over");
    register.enter(b.token());
    register.raise(b.token());
    b
}

#[tokio::test]
async fn a_worker_that_waits_for_the_news_writes_over_the_next_holder() {
    let scene = Scene::begin().await;
    let mut news = Box::pin(scene.a.lost());
    let token = scene.a.token();
    assert!(support::poll_once(&mut news).await.is_pending());
    scene.register.write(token);

    let _b = scene.b_enters().await;
    // The news is on its way, and the worker goes on.
    for _ in 0..3 {
        scene.register.write(token);
    }
    scene.a_locks.settled().await;
    assert_eq!(news.await, Ended::Lapsed);
    assert_eq!(scene.register.tally(), tally(4, 3));
}

#[tokio::test]
async fn a_guarded_worker_does_not_wait_for_the_news() {
    let scene = Scene::begin().await;
    let executor = scene.a.executor();
    let write = |permit: CommitPermit| -> Result<(), EffectError> {
        scene.register.write(permit.single()?.token);
        Ok(())
    };
    let done = executor.guarded(|tx| {
        tx.commit_with(write);
        Ok(())
    });
    assert_eq!(done.unwrap().proof, CommitProof::WithinLease);

    let _b = scene.b_enters().await;
    for _ in 0..3 {
        let refused = executor.guarded(|tx| {
            tx.commit_with(write);
            Ok(())
        });
        assert!(
            matches!(refused, Err(RunError::NotStarted { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(scene.register.tally(), tally(1, 0));
}

#[tokio::test]
async fn work_that_the_lease_did_not_last_for_writes_nothing() {
    let scene = Scene::begin().await;
    let (clock, register) = (scene.clock.clone(), Arc::clone(&scene.register));
    let run = scene.a.executor();
    let outcome = run
        .guarded_async(async |tx| {
            let _b = enter(&clock, &scene.b_locks, &register).await;
            let register = Arc::clone(&register);
            tx.commit_with(async move |permit| {
                register.write(permit.single()?.token);
                Ok::<(), EffectError>(())
            });
            Ok(())
        })
        .await;
    assert!(
        matches!(outcome, Err(RunError::RolledBack { .. })),
        "{outcome:?}"
    );
    assert_eq!(scene.register.tally(), Tally::default());
}

#[tokio::test]
async fn an_overlap_in_the_commit_gap_is_reported_as_late() {
    let scene = Scene::begin().await;
    let (clock, locks) = (scene.clock.clone(), scene.b_locks.clone());
    let register = Arc::clone(&scene.register);
    let outcome = scene
        .a
        .executor()
        .guarded_async(async move |tx| {
            tx.commit_with(async move |permit| {
                // A stalls between its last look and its write.
                let b = enter(&clock, &locks, &register).await;
                register.write(permit.single()?.token);
                drop(b);
                Ok::<(), EffectError>(())
            });
            Ok("value")
        })
        .await;
    match outcome {
        // Timed out by what was left of the lease, or notified late: never a clean commit.
        Err(RunError::CommittedLate { value, late_by, .. }) => {
            assert_eq!(value, "value");
            assert!(late_by >= ms(1));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.register.tally(), tally(1, 1));
}

#[tokio::test]
async fn with_a_fence_at_the_resource_nothing_goes_over_the_next_holder() {
    let scene = Scene::begin().await;
    let (clock, locks) = (scene.clock.clone(), scene.b_locks.clone());
    let register = Arc::clone(&scene.register);
    let outcome = scene
        .a
        .executor()
        .guarded_async(async move |tx| {
            tx.commit_with(async move |permit| {
                let b = enter(&clock, &locks, &register).await;
                let answer = register.write_fenced(permit.single()?.token);
                drop(b);
                match answer {
                    Ok(_) => Ok(Applied::fenced()),
                    Err(seen) => Err(EffectError::Fenced { seen: Some(seen) }),
                }
            });
            Ok(())
        })
        .await;
    assert!(
        matches!(outcome, Err(RunError::Fenced { .. })),
        "{outcome:?}"
    );
    assert_eq!(scene.register.tally(), Tally::default());
}
