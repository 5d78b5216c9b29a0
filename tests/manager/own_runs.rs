//! A run that asks for a lock that it is under would wait for itself: it gets an error at once.

use futures_util::FutureExt;
use leasehold::clock::ManualClock;
use leasehold::reentrant::Scope;
use leasehold::run::{Applied, EffectError};
use leasehold::store::MemoryStore;
use leasehold::{ErrorKind, LockManager, RunError};

use crate::support::any_kind::{Kind, acquire};
use crate::support::{World, poll_once, secs, until_ended};

/// How a run asks for a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Request {
    /// For a guard. A reentrant lock in another scope: its own is entered again.
    Hold(Kind),
    Read,
    /// Together with a key before it, which somebody else holds for ever.
    Behind,
    OneShot,
    OneShotAwaited,
    OneCommit,
}

/// When the run asks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum When {
    Live,
    /// The lease is over, and the manager has not looked yet.
    Lapsed,
    /// The manager has noticed it.
    Lost,
}

/// What becomes of a request: an error, or a hold, which is dropped.
pub(crate) async fn ask(locks: &LockManager, request: Request) -> Result<(), ErrorKind> {
    let lock = locks.lock("a");
    let run = match request {
        Request::Read => {
            let held = locks.read_write("a").read().await;
            return held.map(drop).map_err(|error| error.kind());
        }
        Request::Behind => {
            let held = locks.lock_all(["0", "a"]).acquire().await;
            return held.map(drop).map_err(|error| error.kind());
        }
        Request::OneShot => lock.guarded(|_| Ok(())).await,
        Request::OneShotAwaited => lock.guarded_async(async |_| Ok(())).await,
        Request::OneCommit => {
            let done = lock.commit(|_| async { Ok(Applied::plain()) }).await;
            return done.map(drop).map_err(|error| not_acquired(&error));
        }
        Request::Hold(kind) => {
            let held = acquire(locks, kind).await;
            return held.map(drop).map_err(|error| error.kind());
        }
    };
    run.map(drop).map_err(|error| not_acquired(&error))
}

fn not_acquired<T, E: std::fmt::Debug>(error: &RunError<T, E>) -> ErrorKind {
    match error {
        RunError::NotAcquired { why } => why.kind(),
        other => panic!("it had the lock: {other:?}"),
    }
}

/// What becomes at once of a request for the key in the middle of a run under it.
async fn asked_inside(held: Kind, asked: Request, when: When) -> Option<Result<(), ErrorKind>> {
    let world = World::new();
    let _busy = world.theirs.lock("0").acquire().await.unwrap();
    let guard = acquire(&world.ours, held).await.unwrap();
    let executor = guard.executor();
    let mut answer = None;
    let run = executor.guarded_async(async |_| {
        // So that the lease is looked at only now, and the run goes on without it.
        if when != When::Live {
            world.clock.advance(secs(11));
        }
        if when == When::Lost {
            world.settled().await;
        }
        answer = Box::pin(ask(&world.ours, asked)).now_or_never();
        Ok(())
    });
    let _ = run.await;
    answer
}

#[tokio::test]
async fn a_run_that_asks_for_its_own_lock_gets_an_error_at_once() {
    use Kind::*;
    let mut requests = vec![
        Request::Read,
        Request::Behind,
        Request::OneShot,
        Request::OneShotAwaited,
        Request::OneCommit,
    ];
    requests.extend([Plain, Fair, Write, Reentrant, Election].map(Request::Hold));
    for held in [Plain, Fair, Write, Reentrant, Multi, Election] {
        for &asked in &requests {
            for when in [When::Live, When::Lapsed, When::Lost] {
                let answer = asked_inside(held, asked, when).await;
                assert_eq!(
                    answer,
                    Some(Err(ErrorKind::Invalid)),
                    "{asked:?} in {held:?}, {when:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_run_inside_of_a_one_shot_run_may_not_ask_for_its_lock_either() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let run = lock.guarded_async(async |_| {
        let asked = Box::pin(lock.guarded(|_| Ok(()))).now_or_never();
        let refused = asked.expect("it does not wait").unwrap_err();
        assert_eq!(not_acquired(&refused), ErrorKind::Invalid);
        Ok(())
    });
    run.await.unwrap().into_value();
    let run = lock.guarded(|_| {
        let asked = Box::pin(lock.acquire()).now_or_never();
        let refused = asked.expect("it does not wait").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        Ok(())
    });
    run.await.unwrap().into_value();
}

#[tokio::test]
async fn a_scope_enters_its_own_lock_inside_of_a_run_and_is_refused_at_once_when_it_is_over() {
    for when in [When::Live, When::Lapsed, When::Lost] {
        let world = World::new();
        let (lock, scope) = (world.ours.reentrant("a"), Scope::new());
        let guard = lock.acquire(&scope).await.unwrap();
        let executor = guard.executor();
        let run = executor.guarded_async(async |_| {
            if when != When::Live {
                world.clock.advance(secs(11));
            }
            if when == When::Lost {
                world.settled().await;
            }
            let entered = Box::pin(lock.acquire(&scope)).now_or_never();
            let entered = entered.expect("it does not wait");
            match when {
                When::Live => drop(entered.unwrap()),
                _ => assert!(matches!(entered.unwrap_err().kind(), ErrorKind::Lost(_))),
            }
            Ok(())
        });
        let outcome = run.await;
        assert_eq!(outcome.is_ok(), when == When::Live, "{outcome:?}");
    }
}

/// What takes back a step of a dropped run is a part of the run: its hold ends after it.
#[tokio::test]
async fn a_compensation_of_a_dropped_run_may_not_ask_for_its_lock() {
    for held in [Kind::Plain, Kind::Multi] {
        let world = World::new();
        let guard = acquire(&world.ours, held).await.unwrap();
        let executor = guard.executor();
        let (say, said) = tokio::sync::oneshot::channel();
        let lock = world.ours.lock("a");
        let mut run = Box::pin(executor.guarded_async(async |tx| {
            let credit = move |_| async move {
                let asked = Box::pin(lock.acquire()).now_or_never();
                say.send(asked.map(|asked| asked.map(drop).map_err(|error| error.kind())))
            };
            let debit = async { Ok::<(), EffectError>(()) };
            tx.step("debit", debit, async move |given| {
                credit(given).await.map_err(|_| "nobody listens")
            })
            .await?;
            std::future::pending::<()>().await;
            Ok(())
        }));
        assert!(poll_once(&mut run).await.is_pending());
        drop(run);
        let asked = said.await.unwrap();
        assert_eq!(asked, Some(Err(ErrorKind::Invalid)), "{held:?}");
        drop(guard);
        until_ended(&world, "a").await;
    }
}

/// So is what a hook undoes when the run is dropped, in its work or in its commit call.
#[tokio::test]
async fn a_hook_of_a_dropped_run_may_not_ask_for_its_lock() {
    for held in [Kind::Plain, Kind::Multi] {
        for is_committing in [false, true] {
            let world = World::new();
            let guard = acquire(&world.ours, held).await.unwrap();
            let executor = guard.executor();
            let (say, said) = std::sync::mpsc::channel();
            let lock = world.ours.lock("a");
            let mut run = Box::pin(executor.guarded_async(async |tx| {
                tx.undo(move || {
                    let asked = Box::pin(lock.acquire()).now_or_never();
                    say.send(asked.map(|asked| asked.map(drop).map_err(|error| error.kind())))
                });
                if is_committing {
                    tx.commit_with(async |_| std::future::pending::<Result<(), _>>().await);
                } else {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }));
            assert!(poll_once(&mut run).await.is_pending());
            drop(run);
            let asked = said.recv().unwrap();
            assert_eq!(asked, Some(Err(ErrorKind::Invalid)), "{held:?}");
        }
    }
}

#[tokio::test]
async fn only_the_same_lock_of_the_same_manager_in_the_same_run_is_refused() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let run = executor.guarded_async(async |_| {
        assert!(world.ours.lock("b").acquire().await.is_ok());
        let theirs = world.theirs.lock("a");
        assert!(poll_once(Box::pin(theirs.acquire())).await.is_pending());
        // One look that does not wait needs no error.
        assert!(world.ours.lock("a").try_acquire().await.unwrap().is_none());
        let ours = world.ours.lock("a");
        let elsewhere = std::thread::spawn(move || ours.acquire().now_or_never().is_none());
        assert!(elsewhere.join().unwrap(), "another thread waits");
        Ok(())
    });
    run.await.unwrap().into_value();
    let lock = world.ours.lock("a");
    let mut after = Box::pin(lock.acquire());
    assert!(poll_once(&mut after).await.is_pending(), "the run is over");
    drop(guard);
    drop(after.await.unwrap());
}

#[tokio::test]
async fn a_run_under_several_locks_may_ask_for_none_of_them() {
    let world = World::new();
    let guard = world.ours.lock_all(["a", "b"]).acquire().await.unwrap();
    let executor = guard.executor();
    let run = executor.guarded_async(async |_| {
        for key in ["a", "b"] {
            let refused = world.ours.lock(key).acquire().await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
        }
        Ok(())
    });
    run.await.unwrap().into_value();
}

#[test]
fn a_blocking_run_may_not_ask_for_its_lock_either_also_after_a_panic_in_another() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let lock = locks.lock("a");
    let guard = locks.block_on(lock.acquire()).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        guard
            .executor()
            .guarded(|_| -> Result<(), _> { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    let run = guard.executor().guarded(|_| {
        let refused = locks.block_on(lock.acquire()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        Ok(())
    });
    run.unwrap().into_value();
    drop(guard);
    drop(locks.block_on(lock.acquire()).unwrap());
}

#[tokio::test]
async fn a_run_in_one_slot_may_ask_for_another_and_not_for_its_own() {
    let world = World::new();
    for (slots, expected) in [(2, None), (1, Some(ErrorKind::Invalid))] {
        let slots = world.ours.semaphore(format!("slots-{slots}"), slots);
        let permit = slots.acquire().await.unwrap();
        let executor = permit.executor();
        let run = executor.guarded_async(async |_| {
            let other = slots.acquire().now_or_never().expect("nobody waits");
            assert_eq!(other.map_err(|error| error.kind()).err(), expected);
            Ok(())
        });
        run.await.unwrap().into_value();
    }
}

#[tokio::test]
async fn a_run_in_the_only_slot_may_not_ask_for_it_after_a_loss_either() {
    for is_noticed in [false, true] {
        let world = World::new();
        let slots = world.ours.semaphore("slots", 1);
        let permit = slots.acquire().await.unwrap();
        let executor = permit.executor();
        let run = executor.guarded_async(async |_| {
            world.clock.advance(secs(11));
            if is_noticed {
                world.settled().await;
            }
            let asked = Box::pin(slots.acquire()).now_or_never();
            let refused = asked.expect("it does not wait").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            Ok(())
        });
        assert!(matches!(run.await, Err(RunError::RolledBack { .. })));
    }
}

#[test]
fn a_blocking_run_may_not_ask_for_its_lock_after_a_loss_either() {
    let clock = ManualClock::new();
    let locks = LockManager::builder(MemoryStore::with_clock(clock.clone()))
        .clock(clock.clone())
        .build()
        .unwrap();
    let lock = locks.lock("a");
    for asked in [lock.clone(), locks.lock("a").fair()] {
        let guard = locks.block_on(lock.acquire()).unwrap();
        let run = guard.executor().guarded(|_| {
            clock.advance(secs(11));
            let refused = locks.block_on(asked.acquire()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            Ok(())
        });
        assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    }
}

#[tokio::test]
async fn a_guard_cannot_be_released_inside_of_its_own_run_and_ends_after_it() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let writer = world.ours.read_write("b").write().await.unwrap();
    let executors = [guard.executor(), writer.executor()];
    let outer = executors[0].guarded_async(async |_| {
        let refused = guard.release().now_or_never().expect("it does not wait");
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        Ok(())
    });
    assert!(matches!(outer.await, Err(RunError::RolledBack { .. })));
    let outer = executors[1].guarded_async(async |_| {
        let refused = writer.downgrade().now_or_never().expect("it does not wait");
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        Ok(())
    });
    assert!(matches!(outer.await, Err(RunError::RolledBack { .. })));
    for key in ["a", "b"] {
        until_ended(&world, key).await;
    }
}

/// The store has ended a hold, and the manager's task, which is late, has not.
#[tokio::test]
async fn a_hold_that_nobody_has_noticed_to_be_over_keeps_the_next_local_one_from_its_runs() {
    let clock = ManualClock::new();
    let locks = LockManager::builder(MemoryStore::with_clock(clock.clone()))
        .clock(clock.clone())
        .on_current_runtime()
        .build()
        .unwrap();
    let lock = locks.lock("a").fair();
    let first = lock.acquire().await.unwrap();
    let executor = first.executor();
    let mut run = Box::pin(executor.guarded_async(async |_| {
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    clock.advance(secs(11));
    let next = lock.try_acquire().now_or_never();
    let next = next.expect("the memory store answers at once").unwrap();
    assert!(next.is_none(), "beside a run of the former holder");
    drop(run);
    locks.settled().await;
    assert!(lock.try_acquire().await.unwrap().is_some());
}
