//! The end of a hold with runs under it: close, drain, lost, release, in this order (I5).
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::support::{World, no_handoff, poll_once, secs};
use leasehold::executor::CommitError;
use leasehold::store::Released;
use leasehold::{LeaseError, RunError};
use tokio::sync::Notify;

#[tokio::test]
async fn a_hold_is_released_when_its_runs_have_ended_and_not_before() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let go_on = Notify::new();
    let mut run = Box::pin(executor.guarded_async(async |_| {
        go_on.notified().await;
        Ok(())
    }));
    assert!(poll_once(run.as_mut()).await.is_pending());

    let mut release = Box::pin(guard.release());
    world.pass(secs(25)).await;
    assert!(poll_once(release.as_mut()).await.is_pending());
    assert!(!world.is_free("a").await, "released under a run");
    assert!(
        executor.lease().is_live(),
        "renewed for as long as the run lasts"
    );

    go_on.notify_one();
    // What was closed in between commits no more: the run is taken back.
    assert!(matches!(
        poll_once(run.as_mut()).await,
        Poll::Ready(Err(RunError::RolledBack { .. }))
    ));
    assert!(matches!(release.await, Released::Released));
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn no_run_begins_on_any_clone_once_the_end_has_begun() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let clone = executor.clone();
    let go_on = Notify::new();
    let mut run = Box::pin(executor.guarded_async(async |_| {
        go_on.notified().await;
        Ok(())
    }));
    assert!(poll_once(run.as_mut()).await.is_pending());
    let mut release = Box::pin(guard.release());
    assert!(poll_once(release.as_mut()).await.is_pending());

    let began = AtomicBool::new(false);
    let refused = clone.guarded(|_| {
        began.store(true, Ordering::SeqCst);
        Ok(())
    });
    assert!(matches!(
        refused,
        Err(RunError::NotStarted {
            why: LeaseError::Ending
        })
    ));
    assert!(!began.load(Ordering::SeqCst));
    assert!(clone.lease().is_live(), "closed is not lost");
    drop(run);
    assert!(matches!(release.await, Released::Released));
}

#[tokio::test]
async fn a_hold_with_a_commit_in_doubt_is_left_to_its_ttl() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let outcome = guard.executor().guarded(|tx| {
        tx.commit_with(|_| -> Result<(), _> { Err(CommitError::Unknown("no answer".into())) });
        Ok(())
    });
    assert!(matches!(outcome, Err(RunError::InDoubt { .. })));
    let lease = guard.lease().clone();
    assert!(matches!(guard.release().await, Released::Withheld));
    assert!(!lease.is_live(), "nothing more is done under it here");
    assert!(!world.is_free("a").await, "released in doubt");
    world.pass(secs(9)).await;
    assert!(
        !world.is_free("a").await,
        "the late effect has a whole ttl to land"
    );
    world.pass(secs(2)).await;
    assert!(world.is_free("a").await, "renewed after its end");
}

#[tokio::test]
async fn a_run_that_outlives_its_lease_keeps_the_lock_from_a_release() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let hangs = Arc::new(Notify::new());
    let mut run = Box::pin(executor.guarded_async(async |_| {
        hangs.notified().await;
        Ok(())
    }));
    assert!(poll_once(run.as_mut()).await.is_pending());
    let mut release = Box::pin(guard.release());
    assert!(poll_once(release.as_mut()).await.is_pending());
    // The manager's thread slept past the deadline: the lease is over, the run is not.
    world.clock.advance(secs(10));
    assert!(matches!(release.await, Released::Withheld));
    hangs.notify_one();
    assert!(matches!(
        poll_once(run.as_mut()).await,
        Poll::Ready(Err(RunError::RolledBack { .. }))
    ));
}
