//! Runs that end in an unusual way (dropped, stopped, repeated, out of their turn, under a lock
//! that was taken away) leave nothing behind.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

use leasehold::fence::FenceGate;
use leasehold::reentrant::Scope;
use leasehold::run::{Applied, EffectError};
use leasehold::store::{Revoke, Revoked};
use leasehold::{Abort, Cause, RunError};
use tokio_util::sync::CancellationToken;

use crate::support::{World, poll_and_drop, poll_once, secs, until_ended};
use crate::yielding::yielding;

/// One of two keys is revoked in the middle of a commit call: what was sent is late, and the other
/// key is not free before its own ttl, because the commit may have been meant for it too.
#[tokio::test]
async fn a_commit_under_two_locks_of_which_one_was_revoked_is_late() {
    let world = World::new();
    let guard = world.ours.lock_all(["a", "b"]).acquire().await.unwrap();
    let executor = guard.executor();
    let (applied, is_applied) = tokio::sync::oneshot::channel();
    let mut run = Box::pin(executor.commit(move |_| async move {
        is_applied.await.map_err(EffectError::unknown)?;
        Ok(Applied::plain())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    let revoked = world.theirs.revoke("b", Revoke::Now).await.unwrap();
    assert!(matches!(revoked, Revoked::Revoked { .. }));
    world.pass(secs(4)).await;
    assert!(guard.lease("a").unwrap().is_live());
    assert!(!guard.lease("b").unwrap().is_live());
    let _ = applied.send(());
    let outcome = run.await;
    assert!(
        matches!(
            outcome,
            Err(RunError::CommittedLate { .. } | RunError::InDoubt { .. })
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn one_shot_runs_of_every_form_that_are_dropped_at_any_await_leave_nothing() {
    for form in 0..3 {
        for times in 0.. {
            let (_clock, locks) = yielding();
            let lock = locks.lock("a");
            let runs = AtomicUsize::new(0);
            let work = async |_: &leasehold::AsyncTx| {
                tokio::task::yield_now().await;
                runs.fetch_add(1, SeqCst);
                Ok(())
            };
            let completed = match form {
                0 => poll_and_drop(times, lock.guarded(|_| Ok(()))),
                1 => poll_and_drop(times, lock.guarded_async(work)),
                _ => poll_and_drop(
                    times,
                    lock.commit(|_| async {
                        tokio::task::yield_now().await;
                        Ok(Applied::fenced())
                    }),
                ),
            };
            locks.settled().await;
            // A dropped commit call is in doubt: that hold has to stay.
            let is_left = !locks.list("").await.unwrap().is_empty();
            assert!(!is_left || form == 2, "form {form}, {times} polls");
            assert!(locks.held().is_empty(), "form {form}, {times} polls");
            if completed {
                assert!(!is_left && times > 2, "form {form}, {times} polls");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_turn_passes_on_after_a_panic_a_drop_and_a_wait_that_was_given_up() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor().in_turn();
    let (clone, other) = (executor.clone(), executor.clone());
    let mut first = Box::pin(executor.guarded_async(async |_| {
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut first).await.is_pending());
    let mut second = Box::pin(clone.guarded_async(async |_| Ok(2)));
    assert!(poll_once(&mut second).await.is_pending());
    let mut third = Box::pin(other.guarded_async(async |_| Ok(3)));
    assert!(poll_once(&mut third).await.is_pending());
    drop(second);
    drop(first);
    assert_eq!(third.await.unwrap().value, 3);
    let run =
        AssertUnwindSafe(|| executor.guarded(|_| -> Result<(), Abort> { panic!("on purpose") }));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(executor.guarded(|_| Ok(())).is_ok());
}

#[tokio::test]
async fn a_leader_that_is_stopped_in_its_campaign_or_at_work_leaves_the_office_at_once() {
    for is_taken in [false, true] {
        let world = World::new();
        let office = is_taken.then(|| world.theirs.election("a"));
        let _leader = match &office {
            Some(office) => Some(office.campaign("they").await.unwrap()),
            None => None,
        };
        let election = world.ours.election("a");
        let stop = CancellationToken::new();
        let undone = Arc::new(AtomicI64::new(100));
        let gauge = Arc::clone(&undone);
        let work = async move |leader: &leasehold::election::Leadership| {
            let run = leader.guarded_async(async |tx| {
                tx.snapshot(Arc::clone(&gauge));
                gauge.store(0, SeqCst);
                std::future::pending::<()>().await;
                Ok(())
            });
            run.await.is_ok()
        };
        let mut led = Box::pin(election.while_leader("us", work).until(stop.clone()));
        assert!(poll_once(&mut led).await.is_pending());
        world.settled().await;
        assert!(poll_once(&mut led).await.is_pending());
        stop.cancel();
        assert!(led.await.unwrap().is_none());
        assert_eq!(undone.load(SeqCst), 100);
        assert!(election.state().borrow().is_none());
        if !is_taken {
            until_ended(&world, "a").await;
        }
    }
}

#[tokio::test]
async fn a_run_that_loses_its_lock_may_be_repeated_only_before_its_commit() {
    for sends in [false, true] {
        let world = World::new();
        let lock = world.ours.lock("a");
        let run = lock.guarded_async(async |tx| {
            if sends {
                tx.step(
                    "debit",
                    async { Err::<(), _>(EffectError::unknown("no answer")) },
                    |_| async {},
                )
                .await?;
            }
            world.clock.advance(secs(11));
            Ok(())
        });
        let error = run.await.unwrap_err();
        assert_eq!(error.is_retryable(), !sends, "{error:?}");
    }
}

/// A downgrade that is dropped at any await neither keeps the key nor lets two writers in.
#[tokio::test]
async fn a_downgrade_that_is_dropped_at_any_await_ends_the_hold() {
    for times in 0.. {
        let (_clock, locks) = yielding();
        let writer = locks.read_write("a").write().await.unwrap();
        let executor = writer.executor();
        let completed = poll_and_drop(times, async { drop(writer.downgrade().await.unwrap()) });
        assert!(executor.guarded(|_| Ok(())).is_err(), "{times} polls");
        for _ in 0..1_000 {
            locks.settled().await;
            tokio::task::yield_now().await;
        }
        assert!(locks.list("").await.unwrap().is_empty(), "{times} polls");
        assert!(locks.held().is_empty(), "{times} polls");
        if completed {
            return;
        }
    }
}

/// The scope's outer guard goes first: the hold lives until the inner one goes, and its runs with
/// it.
#[tokio::test]
async fn a_reentrant_hold_lives_as_long_as_its_last_guard_in_any_order() {
    let world = World::new();
    let (lock, scope) = (
        world.ours.reentrant("a").fence(FenceGate::new()),
        Scope::new(),
    );
    let outer = lock.acquire(&scope).await.unwrap();
    let inner = lock.acquire(&scope).await.unwrap();
    let executor = outer.executor();
    assert!(outer.release().await.unwrap().is_none());
    assert!(executor.guarded(|_| Ok(())).is_ok());
    let again = lock.acquire(&scope).await.unwrap();
    assert_eq!(again.token(), inner.token());
    drop(inner);
    assert!(executor.guarded(|_| Ok(())).is_ok());
    drop(again);
    let refused = executor.guarded(|_| Ok(()));
    assert!(
        matches!(refused, Err(RunError::NotStarted { .. })),
        "{refused:?}"
    );
    until_ended(&world, "a").await;
    let next = lock.acquire(&scope).await.unwrap();
    assert!(next.lease().is_live());
}

/// Work that stopped on purpose: nothing is applied, the lock is free.
#[tokio::test]
async fn a_run_that_breaks_a_rule_may_not_be_repeated() {
    let world = World::new();
    let cell = leasehold::GuardedCell::for_key("b".parse().unwrap(), 0);
    let lock = world.ours.lock("a");
    let run = lock.guarded(|tx| {
        *tx.write(&cell) += 1;
        Ok(())
    });
    let error = run.await.unwrap_err();
    assert!(
        matches!(error.cause(), Some(Cause::Refused(_))),
        "{error:?}"
    );
    assert!(!error.is_retryable());
    assert_eq!(*cell.read(), 0);
}
