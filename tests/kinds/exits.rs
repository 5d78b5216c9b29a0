//! Every kind of lock through every way out: drop, panic, cancellation, shutdown, a lost key, a
//! fence that fails.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use futures_util::FutureExt;
use leasehold::fence::Fence;
use leasehold::reentrant::Scope;
use leasehold::{Error, ErrorKind, FencingToken, Key, RunError};

use crate::support::any_kind::{ALL, Kind, acquire};
use crate::support::in_doubt::leave_in_doubt;
use crate::support::{World, poll_once, secs, until_ended, while_time_passes};

#[tokio::test]
async fn no_kind_is_released_inside_of_its_own_run_and_each_ends_after_it() {
    for kind in ALL {
        let world = World::new();
        let guard = acquire(&world.ours, kind).await.unwrap();
        let executor = guard.executor();
        let run = executor.guarded_async(async |_| {
            let refused = Box::pin(guard.release()).now_or_never();
            let refused = refused.expect("it does not wait").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{kind:?}");
            Ok(())
        });
        assert!(matches!(run.await, Err(RunError::RolledBack { .. })));
        for &key in kind.keys() {
            until_ended(&world, key).await;
        }
    }
}

/// A lease lapses in the middle of a run of any kind: the next local holder of each of its keys
/// waits for the run.
#[tokio::test]
async fn whatever_the_kind_the_next_local_holder_of_each_key_waits_for_a_lapsed_run() {
    for kind in ALL {
        let world = World::new();
        let guard = acquire(&world.ours, kind).await.unwrap();
        let executor = guard.executor();
        let gauge = Arc::new(AtomicI64::new(100));
        let (go_on, goes_on) = tokio::sync::oneshot::channel();
        let mut run = Box::pin(executor.guarded_async(async |tx| {
            tx.snapshot(Arc::clone(&gauge));
            gauge.store(0, SeqCst);
            goes_on.await.unwrap();
            Ok(())
        }));
        assert!(poll_once(&mut run).await.is_pending());
        world.clock.advance(secs(11));
        world.settled().await;
        for &key in kind.keys() {
            for fair in [false, true] {
                let lock = world.ours.lock(key);
                let lock = if fair { lock.fair() } else { lock };
                assert!(
                    lock.try_acquire().await.unwrap().is_none(),
                    "{kind:?} {key}"
                );
            }
            let reader = world.ours.read_write(key);
            assert!(reader.try_read().await.unwrap().is_none(), "{kind:?} {key}");
            let theirs = world.theirs.lock(key);
            drop(
                theirs
                    .try_acquire()
                    .await
                    .unwrap()
                    .expect("they share no memory"),
            );
            until_ended(&world, key).await;
        }
        go_on.send(()).unwrap();
        assert!(matches!(run.await, Err(RunError::RolledBack { .. })));
        assert_eq!(gauge.load(SeqCst), 100);
        for &key in kind.keys() {
            let next = world.ours.lock(key);
            let next = while_time_passes(&world, secs(5), next.acquire()).await;
            drop(next.unwrap());
        }
        drop(guard);
    }
}

/// A commit in doubt, whatever the kind: with a local caller that waits, nothing is handed off or
/// released before the ttl.
#[tokio::test]
async fn whatever_the_kind_a_hold_in_doubt_goes_to_nobody_before_its_ttl() {
    for kind in ALL {
        for is_dropped in [false, true] {
            let world = World::new();
            let guard = acquire(&world.ours, kind).await.unwrap();
            let locks: Vec<_> = (kind.keys().iter())
                .map(|&key| world.ours.lock(key))
                .collect();
            let mut waiting: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
            for waiting in &mut waiting {
                assert!(poll_once(waiting).await.is_pending());
            }
            leave_in_doubt(&guard.executor());
            if is_dropped {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            world.settled().await;
            for (&key, waiting) in kind.keys().iter().zip(&mut waiting) {
                assert!(poll_once(waiting).await.is_pending(), "{kind:?} {key}");
                let theirs = world.theirs.lock(key);
                assert!(
                    theirs.try_acquire().await.unwrap().is_none(),
                    "{kind:?} {key}"
                );
            }
            for waiting in waiting {
                drop(while_time_passes(&world, secs(20), waiting).await.unwrap());
            }
        }
    }
}

#[tokio::test]
async fn whatever_the_kind_a_panic_in_a_run_is_undone_and_its_guard_releases() {
    for kind in ALL {
        let world = World::new();
        let gauge = Arc::new(AtomicI64::new(100));
        let guard = acquire(&world.ours, kind).await.unwrap();
        let panicked = AssertUnwindSafe(async {
            let guard = guard;
            let executor = guard.executor().in_turn();
            let run = executor.guarded_async(async |tx| {
                tx.snapshot(Arc::clone(&gauge));
                gauge.store(0, SeqCst);
                tokio::task::yield_now().await;
                panic!("on purpose");
            });
            let _: Result<leasehold::Committed<()>, _> = run.await;
            drop(guard);
        });
        assert!(panicked.catch_unwind().await.is_err());
        assert_eq!(gauge.load(SeqCst), 100, "{kind:?}");
        for &key in kind.keys() {
            until_ended(&world, key).await;
        }
        let again = acquire(&world.ours, kind).await.unwrap();
        assert!(again.executor().in_turn().guarded(|_| Ok(())).is_ok());
    }
}

#[tokio::test]
async fn whatever_the_kind_a_shutdown_ends_those_who_wait() {
    for kind in ALL {
        let world = World::new();
        let _first = acquire(&world.theirs, kind).await.unwrap();
        let mut waiting = Box::pin(acquire(&world.ours, kind));
        assert!(poll_once(&mut waiting).await.is_pending());
        let shutdown = world.ours.shutdown();
        let (ended, ()) = tokio::join!(waiting, shutdown);
        let error = ended.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{kind:?}: {error}");
    }
}

/// A fence that fails in one of the ways.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Never,
    Refuses,
    Panics,
}

impl Fence for Fails {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        match self {
            Self::Never => std::future::pending().await,
            Self::Refuses => Err(Error::denied("on purpose")),
            Self::Panics => panic!("on purpose"),
        }
    }
}

#[tokio::test]
async fn whatever_the_kind_a_fence_that_fails_leaves_no_key_held() {
    for fails in [Fails::Never, Fails::Refuses, Fails::Panics] {
        for kind in ALL.into_iter().filter(|kind| *kind != Kind::Permits) {
            let world = World::new();
            let locks = &world.ours;
            let asked = async {
                match kind {
                    Kind::Plain => locks.lock("a").fence(fails).acquire().await.map(drop),
                    Kind::Fair => locks
                        .lock("a")
                        .fair()
                        .fence(fails)
                        .acquire()
                        .await
                        .map(drop),
                    Kind::Write => locks.read_write("a").fence(fails).write().await.map(drop),
                    Kind::Reentrant => {
                        let lock = locks.reentrant("a").fence(fails);
                        lock.acquire(&Scope::new()).await.map(drop)
                    }
                    Kind::Multi => locks
                        .lock_all(["a", "b"])
                        .fence(fails)
                        .acquire()
                        .await
                        .map(drop),
                    Kind::Semaphore => locks
                        .semaphore("a", 2)
                        .fence(fails)
                        .acquire()
                        .await
                        .map(drop),
                    Kind::Permits => unreachable!("they have no fence"),
                    Kind::Election => locks
                        .election("a")
                        .fence(fails)
                        .campaign("us")
                        .await
                        .map(drop),
                }
            };
            let asked = AssertUnwindSafe(while_time_passes(&world, secs(60), asked)).catch_unwind();
            let ended = asked.await;
            assert!(!matches!(ended, Ok(Ok(()))), "{fails:?} {kind:?}");
            for key in ["a", "b", "a/slot-0", "a/slot-1"] {
                until_ended(&world, key).await;
            }
        }
    }
}
