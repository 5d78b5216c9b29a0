//! The end of a hold with runs under it: close, drain, lost, release, in this order (I5).
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::support::in_doubt::end_in_doubt;
use crate::support::{World, no_handoff, poll_once, secs};
use leasehold::store::Released;
use leasehold::{Committed, Executor, LeaseError, RunError};
use tokio::sync::Notify;

/// A run that is in progress until it is notified.
async fn run_until(executor: &Executor, go_on: &Notify) -> Result<Committed<()>, RunError<()>> {
    let run = executor.guarded_async(async |_| {
        go_on.notified().await;
        Ok(())
    });
    run.await
}

#[tokio::test]
async fn a_hold_is_released_when_its_runs_have_ended_and_not_before() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let go_on = Notify::new();
    let mut run = Box::pin(run_until(&executor, &go_on));
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
    assert!(matches!(release.await, Ok(Released::Released)));
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn no_run_begins_on_any_clone_once_the_end_has_begun() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let clone = executor.clone();
    let go_on = Notify::new();
    let mut run = Box::pin(run_until(&executor, &go_on));
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
    assert!(matches!(release.await, Ok(Released::Released)));
}

#[tokio::test]
async fn a_hold_with_a_commit_in_doubt_is_left_to_its_ttl() {
    let world = World::with(no_handoff());
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let lease = guard.lease().clone();
    let released = end_in_doubt(guard).await;
    assert_eq!(
        released.to_string(),
        "not released, its ttl ends it: a step or a commit under it is in doubt"
    );
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
    let hangs = Notify::new();
    let mut run = Box::pin(run_until(&executor, &hangs));
    assert!(poll_once(run.as_mut()).await.is_pending());
    let mut release = Box::pin(guard.release());
    assert!(poll_once(release.as_mut()).await.is_pending());
    // The manager's thread slept past the deadline: the lease is over, the run is not.
    world.clock.advance(secs(10));
    let released = release.await.unwrap();
    assert!(matches!(released, Released::Withheld { .. }), "{released}");
    assert_eq!(
        released.to_string(),
        "not released, its ttl ends it: a run was still in progress when its lease ended"
    );
    hangs.notify_one();
    assert!(matches!(
        poll_once(run.as_mut()).await,
        Poll::Ready(Err(RunError::RolledBack { .. }))
    ));
}

#[tokio::test]
async fn no_run_begins_once_its_guard_is_dropped() {
    let world = World::new();
    for key in 0..50 {
        let guard = world.ours.lock(format!("{key}")).acquire().await.unwrap();
        let executor = guard.executor();
        drop(guard);
        let late = executor.guarded(|_| Ok(()));
        assert!(matches!(late, Err(RunError::NotStarted { .. })), "{late:?}");
    }
}

#[tokio::test]
async fn a_release_with_a_limit_leaves_the_lock_of_a_hanging_run_to_its_ttl() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let hangs = Notify::new();
    let mut run = Box::pin(run_until(&executor, &hangs));
    assert!(poll_once(run.as_mut()).await.is_pending());
    let mut release = Box::pin(guard.release_within(secs(25)));
    assert!(poll_once(release.as_mut()).await.is_pending());
    world.pass(secs(24)).await;
    assert!(poll_once(release.as_mut()).await.is_pending());
    assert!(executor.lease().is_live(), "renewed until the limit");
    world.pass(secs(1)).await;
    let released = poll_once(release.as_mut()).await;
    assert!(matches!(
        released,
        Poll::Ready(Ok(Released::Withheld { .. }))
    ));
    assert!(!executor.lease().is_live());
    world.pass(secs(10)).await;
    assert!(world.is_free("a").await, "renewed after the limit");
    hangs.notify_one();
    let outcome = poll_once(run.as_mut()).await;
    assert!(matches!(
        outcome,
        Poll::Ready(Err(RunError::RolledBack { .. }))
    ));
}

#[tokio::test]
async fn the_cancellation_token_of_a_lease_is_cancelled_when_it_ends_and_does_not_end_it() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let lease = guard.lease().clone();
    let (mine, other) = (lease.cancellation_token(), lease.cancellation_token());
    mine.cancel();
    assert!(lease.is_live() && !other.is_cancelled());
    let _ = guard.release().await;
    assert!(other.is_cancelled());
    assert!(
        lease.cancellation_token().is_cancelled(),
        "asked for after the end"
    );
    let both = world.ours.lock_all(["b", "c"]).acquire().await.unwrap();
    let joint = both.executor().lease().cancellation_token();
    assert!(!joint.is_cancelled());
    let _ = both.release().await;
    assert!(joint.is_cancelled());
}
