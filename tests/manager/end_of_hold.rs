//! The one end of a hold, with runs in progress, effects in doubt, and a network that loses answers
//! (I5).
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;

use crate::support::in_doubt::end_in_doubt;
use crate::support::{Far, ms, poll_once, secs};
use leasehold::run::{Compensation, Effect, EffectError};
use leasehold::store::Released;
use leasehold::testing::{Faults, Operation};
use leasehold::{Cause, Ended, ErrorKind, GuardedCell, LeaseError, RunError};

#[tokio::test]
async fn nothing_commits_after_the_release_was_sent() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let cell = GuardedCell::new(0);
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (began, has_begun) = mpsc::channel::<()>();
    let (executor, written) = (guard.executor(), cell.clone());
    let run = std::thread::spawn(move || {
        executor.guarded(|tx| {
            *tx.write(&written) = 1;
            began.send(()).unwrap();
            may_go_on.recv().unwrap();
            Ok(())
        })
    });
    has_begun.recv().unwrap();

    let late = guard.executor();
    let lease = guard.lease().clone();
    let mut release = Box::pin(guard.release());
    assert!(poll_once(&mut release).await.is_pending());
    // The run that is in progress holds the release up, and no other begins.
    scene.pass(secs(30)).await;
    assert_eq!(scene.network.counts(Operation::Release).asked, 0);
    assert!(lease.is_live(), "renewed until the run has ended");
    assert!(matches!(
        late.guarded(|_| Ok(())),
        Err(RunError::NotStarted {
            why: LeaseError::Ending
        })
    ));

    go_on.send(()).unwrap();
    assert!(matches!(release.await, Ok(Released::Released)));
    let outcome = run.join().unwrap();
    assert!(
        matches!(
            &outcome,
            Err(RunError::RolledBack {
                cause: Cause::Lease(LeaseError::Ending),
                ..
            })
        ),
        "{outcome:?}"
    );
    assert_eq!(*cell.read(), 0);
    assert!(scene.is_free("a").await);
}

#[tokio::test]
async fn a_run_that_never_ends_keeps_its_lock_from_being_released_and_shutdown_from_waiting_for_ever()
 {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let mut run = Box::pin(executor.guarded_async(async |_| {
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    let lease = guard.lease().clone();
    let mut release = Box::pin(guard.release());
    assert!(poll_once(&mut release).await.is_pending());

    let locks = scene.locks.clone();
    let mut shutdown = Box::pin(locks.shutdown());
    assert!(poll_once(&mut shutdown).await.is_pending());
    scene.locks.settled().await;
    let mut released = None;
    for _ in 0..110 {
        scene.clock.advance(ms(100));
        scene.locks.settled().await;
        if released.is_none()
            && let Poll::Ready(answer) = poll_once(&mut release).await
        {
            released = Some(answer);
        }
    }
    shutdown.await;
    assert!(
        matches!(released, Some(Ok(Released::Withheld { .. }))),
        "{released:?}"
    );
    assert_eq!(scene.network.counts(Operation::Release).asked, 0);
    assert!(!lease.is_live());
}

#[tokio::test]
async fn a_release_that_is_begun_and_forgotten_does_not_keep_a_shutdown_waiting_for_ever() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    scene.network.stall(Operation::Release);
    let mut release = Box::pin(guard.release());
    assert!(poll_once(&mut release).await.is_pending());
    let mut shutdown = Box::pin(scene.locks.shutdown());
    assert!(poll_once(&mut shutdown).await.is_pending());
    scene.pass(secs(32)).await;
    shutdown.await;
    drop(release);
}

#[tokio::test]
async fn a_hold_with_a_commit_in_doubt_is_not_released_but_left_to_expire() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let lease = guard.lease().clone();
    end_in_doubt(guard).await;
    assert_eq!(lease.lost_reason(), Some(Ended::Released));
    scene.pass(secs(9)).await;
    assert!(!scene.is_free("a").await);
    scene.pass(secs(2)).await;
    assert!(
        scene.is_free("a").await,
        "renewing has stopped, and the ttl has ended it"
    );
    assert_eq!(scene.network.counts(Operation::Release).asked, 0);
}

#[tokio::test]
async fn a_hold_in_doubt_is_not_handed_off_either() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let lock = scene.locks.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let token = guard.token();
    let outcome = guard
        .executor()
        .guarded_async(async |tx| {
            let lost = async { Err::<(), _>(EffectError::unknown("the reply was lost")) };
            tx.step("debit", lost, async |_| ()).await?;
            Ok(())
        })
        .await;
    assert!(
        matches!(outcome, Err(RunError::Incomplete { .. })),
        "{outcome:?}"
    );
    assert!(matches!(
        guard.release().await,
        Ok(Released::Withheld { .. })
    ));
    assert!(poll_once(&mut waiting).await.is_pending());
    for _ in 0..110 {
        scene.clock.advance(ms(100));
        scene.locks.settled().await;
        if let Poll::Ready(next) = poll_once(&mut waiting).await {
            assert!(next.unwrap().token() > token);
            return;
        }
    }
    panic!("the next caller never got the lock");
}

#[tokio::test]
async fn what_a_dropped_run_must_take_back_outside_is_taken_back_before_the_release() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let undone = Arc::new(AtomicBool::new(false));
    let (undo, network) = (Arc::clone(&undone), scene.network.clone());
    let mut run = Box::pin(executor.guarded_async(async move |tx| {
        let done = async { Ok::<_, EffectError>(()) };
        tx.step("debit", done, async move |_| {
            assert_eq!(network.counts(Operation::Release).asked, 0);
            undo.store(true, Ordering::SeqCst);
        })
        .await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    drop(run);
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    assert!(undone.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_release_with_a_limit_waits_no_longer_for_the_end_of_a_lost_hold() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let done = async { Ok::<_, EffectError>(()) };
        tx.step(Effect::new("debit").fenced(), done, async |_| {
            std::future::pending::<()>().await
        })
        .await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    drop(run);
    scene.network.block(Operation::Renew);
    // The manager ends the hold, and waits for the compensation.
    scene.pass(secs(11)).await;
    assert_eq!(guard.lost().await, Ended::Lapsed);
    scene.pass(secs(1)).await;
    let mut release = Box::pin(guard.release_within(secs(2)));
    assert!(poll_once(&mut release).await.is_pending());
    scene.pass(secs(2)).await;
    let released = poll_once(&mut release).await;
    assert!(
        matches!(released, Poll::Ready(Ok(Released::Withheld { .. }))),
        "{released:?}"
    );
}

#[tokio::test]
async fn failing_renewals_put_a_lease_at_risk_before_it_is_lost() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    scene.pass(secs(4)).await;
    assert!(guard.lease().is_at_risk() && guard.lease().is_live());
    guard.lease().at_risk().await;

    scene.network.unblock(Operation::Renew);
    scene.pass(secs(4)).await;
    assert!(!guard.lease().is_at_risk());
    assert!(guard.remaining() > secs(5));

    scene.network.block(Operation::Renew);
    scene.pass(secs(11)).await;
    assert_eq!(guard.lost().await, Ended::Lapsed);
    assert!(!guard.lease().is_at_risk(), "it is worse than at risk");
}

#[tokio::test]
async fn a_stopped_store_costs_the_lease_and_nothing_else() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    for operation in Operation::ALL {
        scene.network.stall(operation);
    }
    scene.pass(secs(11)).await;
    assert_eq!(guard.lost().await, Ended::Lapsed);
    for operation in Operation::ALL {
        scene.network.unblock(operation);
    }
    scene.pass(secs(1)).await;
    let next = scene.locks.lock("a").acquire().await.unwrap();
    assert!(next.lease().is_live());
}

#[tokio::test]
async fn an_acquire_whose_answer_was_lost_leaves_nothing_locked() {
    let scene = Far::new();
    let mut faults = Faults::default();
    faults.lost_after = 1.0;
    scene.network.set(faults).unwrap();
    let error = scene.locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::InDoubt);
    // The withdrawal's answers are lost too, but they are executed.
    scene.locks.settled().await;
    scene.network.set(Faults::default()).unwrap();
    assert!(scene.is_free("a").await);
    scene.pass(secs(1)).await;
    assert!(scene.locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_withdrawal_is_refused() {
    let scene = Far::new();
    let mut faults = Faults::default();
    faults.late = 1.0;
    scene.network.set(faults).unwrap();
    assert!(scene.locks.lock("a").try_acquire().await.is_err());
    scene.locks.settled().await;
    scene.network.set(Faults::default()).unwrap();
    scene.network.deliver().await;
    assert!(scene.is_free("a").await);
}

#[tokio::test]
async fn an_unanswered_release_is_repeated_until_it_is_confirmed() {
    let scene = Far::new();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    scene.network.block(Operation::Release);
    assert!(matches!(guard.release().await, Err(error) if error.kind() == ErrorKind::InDoubt));
    scene.pass(secs(1)).await;
    assert!(!scene.is_free("a").await);
    scene.network.unblock(Operation::Release);
    scene.pass(secs(1)).await;
    assert!(scene.is_free("a").await, "long before its ttl");
}

#[tokio::test]
async fn a_panic_in_the_work_of_a_one_shot_run_releases_the_lock() {
    let scene = Far::new();
    let locks = scene.locks.clone();
    let run = tokio::spawn(async move {
        let _ = locks
            .lock("a")
            .guarded(|_| -> Result<(), _> { panic!("on purpose") })
            .await;
    });
    assert!(run.await.unwrap_err().is_panic());
    scene.locks.settled().await;
    assert!(scene.is_free("a").await);
}

#[tokio::test]
async fn a_one_shot_run_says_that_it_was_not_acquired() {
    let scene = Far::new();
    let outcome = scene.locks.lock("").guarded(|_| Ok(())).await;
    let Err(error @ RunError::NotAcquired { .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(error.was_applied(), Some(false));
    assert!(
        error.to_string().starts_with("not acquired: invalid"),
        "{error}"
    );
}

#[tokio::test]
async fn one_shot_runs_can_be_spawned() {
    let scene = Far::new();
    let counter = GuardedCell::new(0_u32);
    let runs: Vec<_> = (0..20)
        .map(|n| {
            let (lock, counter) = (scene.locks.lock("a"), counter.clone());
            tokio::spawn(async move {
                if n % 2 == 0 {
                    lock.guarded(|tx| {
                        *tx.write(&counter) += 1;
                        Ok(())
                    })
                    .await
                    .map(|_| ())
                } else {
                    lock.guarded_async(async |tx| {
                        tokio::task::yield_now().await;
                        *tx.write(&counter) += 1;
                        Ok(())
                    })
                    .await
                    .map(|_| ())
                }
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert_eq!(*counter.read(), 20);
    assert!(scene.is_free("a").await);
}

/// Behind a fence a compensation may take its time, but the page of a shutdown says how long that
/// takes.
#[tokio::test]
async fn a_fenced_compensation_that_never_ends_delays_a_shutdown_by_one_ttl() {
    let scene = Far::new();
    let settings = scene.locks.settings().clone();
    let guard = scene.locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let sent = async { Ok::<(), EffectError>(()) };
        let take_back = async move |_: Compensation| drop(ended.await);
        tx.step(Effect::new("debit").fenced(), sent, take_back)
            .await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    drop(run);
    drop(guard);
    let began = scene.clock.clone();
    let began = leasehold::clock::Clock::from(began).stamp();
    let mut shutdown = Box::pin(scene.locks.shutdown());
    while poll_once(&mut shutdown).await.is_pending() {
        scene.clock.advance(ms(100));
        tokio::task::yield_now().await;
        let now = leasehold::clock::Clock::from(scene.clock.clone()).stamp();
        let most = settings.ttl + settings.request_timeout + secs(1);
        assert!(now.since(&began) <= most, "it goes on: {settings:?}");
        scene.locks.settled().await;
    }
    drop(end);
}
