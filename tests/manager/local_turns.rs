//! The turns of one process: what a holder leaves behind does not reach the next local holder.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use leasehold::fence::FenceGate;
use leasehold::{Ended, ErrorKind, Executor, Lock, RunError, Settings};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::{World, poll_once, secs, while_time_passes};

/// A run that has changed a gauge from 0 to 1 and hangs. It undoes the change when it ends without
/// its lease.
struct HangingRun {
    gauge: Arc<AtomicI64>,
    hangs: Arc<Notify>,
    run: JoinHandle<Result<(), RunError<()>>>,
}

impl HangingRun {
    async fn begin(executor: Executor) -> Self {
        let gauge = Arc::new(AtomicI64::new(0));
        let hangs = Arc::new(Notify::new());
        let (changed, until) = (Arc::clone(&gauge), Arc::clone(&hangs));
        let run = tokio::spawn(async move {
            let work = executor.guarded_async(async move |tx| {
                tx.snapshot(Arc::clone(&changed));
                changed.store(1, SeqCst);
                until.notified().await;
                Ok(())
            });
            work.await.map(|done| done.value)
        });
        while gauge.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        Self { gauge, hangs, run }
    }

    async fn end(self) {
        self.hangs.notify_one();
        let outcome = self.run.await.unwrap();
        assert!(matches!(outcome, Err(RunError::RolledBack { .. })));
        assert_eq!(self.gauge.load(SeqCst), 0);
    }
}

/// The lease of `first` lapses during a run. Another process gets the lock at once, and the next
/// local caller after the run.
async fn next_local_holder_waits_for_the_run(world: &World, lock: Lock) {
    let first = lock.acquire().await.unwrap();
    let run = HangingRun::begin(first.executor()).await;
    world.clock.advance(secs(11));
    world.settled().await;
    assert_eq!(first.lease().lost_reason(), Some(Ended::Lapsed));

    let theirs = world.theirs.lock("a").try_acquire().await.unwrap();
    let _ = theirs
        .expect("another process is not affected")
        .release()
        .await;

    let mut second = Box::pin(lock.acquire());
    for _ in 0..10 {
        assert!(poll_once(&mut second).await.is_pending());
        world.settled().await;
    }
    assert!(lock.try_acquire().await.unwrap().is_none());
    run.end().await;
    let second = while_time_passes(world, secs(3), second).await.unwrap();
    assert!(second.lease().is_live());
}

#[tokio::test]
async fn the_next_local_holder_waits_until_the_former_ones_runs_have_ended() {
    let world = World::new();
    next_local_holder_waits_for_the_run(&world, world.ours.lock("a")).await;
}

#[tokio::test]
async fn the_next_local_holder_of_a_fair_lock_waits_for_the_former_ones_runs_too() {
    let world = World::new();
    next_local_holder_waits_for_the_run(&world, world.ours.lock("a").fair()).await;
}

#[tokio::test]
async fn a_wait_for_a_former_holders_run_ends_with_an_error_that_names_it() {
    let world = World::new();
    let first = world.ours.lock("a").acquire().await.unwrap();
    let run = HangingRun::begin(first.executor()).await;
    world.clock.advance(secs(11));
    world.settled().await;
    let lock = world.ours.lock("a");
    let error = while_time_passes(&world, secs(60), lock.acquire()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    let text = error.to_string();
    assert!(text.contains("a former holder in this process"), "{text}");
    run.end().await;
    world.settled().await;
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_the_runs_of_a_former_holder() {
    let world = World::new();
    let first = world.ours.lock("a").acquire().await.unwrap();
    let run = HangingRun::begin(first.executor()).await;
    world.clock.advance(secs(11));
    world.settled().await;
    // No time passes.
    world.ours.shutdown().await;
    run.end().await;
}

/// Whether `second`, which waits while `first` is held, gets the grant of `first`.
async fn is_handed_off(first: Lock, second: Lock) -> bool {
    let held = first.acquire().await.unwrap();
    let token = held.token();
    let mut waiting = Box::pin(second.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = held.release().await;
    waiting.await.unwrap().token() == token
}

#[tokio::test]
async fn a_hold_is_not_handed_off_where_the_holder_or_the_waiter_has_a_fence_or_refuses() {
    let world = World::new();
    let plain = || world.ours.lock("a");
    let fenced = || world.ours.lock("a").fence(FenceGate::new());
    assert!(is_handed_off(plain(), plain()).await);
    assert!(!is_handed_off(fenced(), plain()).await);
    assert!(!is_handed_off(plain(), fenced()).await);
    assert!(!is_handed_off(plain().handoff(false), plain()).await);
    assert!(!is_handed_off(plain(), plain().handoff(false)).await);
}

#[tokio::test]
async fn max_hold_begins_anew_for_the_next_holder_of_a_handoff() {
    let mut settings = Settings::default();
    settings.max_hold = Some(secs(20));
    settings.handoff_time = secs(60);
    let world = World::with(settings);
    let first = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(15)).await;
    let lock = world.ours.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let token = first.token();
    let _ = first.release().await;
    let second = waiting.await.unwrap();
    assert_eq!(second.token(), token, "handed off");
    world.pass(secs(19)).await;
    assert!(second.lease().is_live());
    world.pass(secs(2)).await;
    assert_eq!(second.lease().lost_reason(), Some(Ended::MaxHold));
}
