//! The end of a hold, with runs in progress on other threads (I5), and small clauses about runs as
//! a whole.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::executor_support::{Gauge, Stage, TTL, Trace, pause, poll_once};
use leasehold::run::Staged;
use leasehold::{
    Abort, AsyncTx, Cause, Committed, Ended, Executor, GuardedCell, LeaseError, RunError, Tx,
};

#[test]
fn nothing_commits_after_the_hold_has_drained() {
    const ROUNDS: usize = 300;
    for round in 0..ROUNDS {
        let stage = Stage::new();
        let (released, commits) = (AtomicBool::new(false), AtomicU64::new(0));
        let start = Barrier::new(3);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                let executor = stage.executor.clone();
                let (released, commits, start) = (&released, &commits, &start);
                threads.spawn(move || {
                    start.wait();
                    loop {
                        let outcome = executor.guarded(|tx| {
                            tx.commit_with(|_| {
                                std::thread::yield_now();
                                assert!(
                                    !released.load(Ordering::SeqCst),
                                    "round={round}: committed after the release"
                                );
                                commits.fetch_add(1, Ordering::SeqCst);
                                Ok(())
                            });
                            Ok(())
                        });
                        match outcome {
                            Ok(_) => {}
                            Err(
                                RunError::NotStarted {
                                    why: LeaseError::Ending,
                                }
                                | RunError::RolledBack {
                                    cause: Cause::Lease(LeaseError::Ending),
                                    ..
                                },
                            ) => return,
                            Err(other) => panic!("round={round}: {other}"),
                        }
                    }
                });
            }
            start.wait();
            while commits.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            stage.hold.close();
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(stage.hold.drained());
            released.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn a_run_in_progress_is_waited_for_and_does_not_commit() {
    let (stage, cell, trace) = (Stage::new(), GuardedCell::new(0), Trace::default());
    let outcome = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 1;
        tx.undo(|| {
            trace.add("undo");
            assert!(!stage.is_drained(), "the undo belongs to the run");
        });
        stage.hold.close();
        assert_eq!(tx.check(), Err(LeaseError::Ending));
        assert!(!stage.is_drained());
        Ok(())
    });
    assert!(matches!(
        outcome,
        Err(RunError::RolledBack {
            cause: Cause::Lease(LeaseError::Ending),
            ..
        })
    ));
    assert!(stage.is_drained());
    assert_eq!((*cell.read(), trace.all()), (0, vec!["undo".to_owned()]));
}

#[test]
fn compensations_run_while_the_hold_ends_and_the_lease_lives() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    let outcome = stage.executor.guarded(|tx| {
        tx.step(
            "debit 7",
            || {
                outside.add(-10);
                Ok(())
            },
            |_| outside.add(10),
        )?;
        stage.hold.close();
        Ok(())
    });
    assert!(matches!(outcome, Err(RunError::RolledBack { .. })));
    assert_eq!(outside.value(), 0);
}

#[test]
fn a_lost_lease_is_never_used_again() {
    let stage = Stage::new();
    stage.hold.revoke(Ended::Gone);
    assert!(!stage.hold.renew(TTL), "a lapse is final");
    for executor in [
        &stage.executor,
        &stage.executor.clone(),
        &stage.hold.executor(),
    ] {
        assert!(matches!(
            executor.guarded(|_| Ok(())),
            Err(RunError::NotStarted {
                why: LeaseError::Lost(Ended::Gone)
            })
        ));
    }
}

#[test]
fn a_check_fails_as_soon_as_the_lease_is_over() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| {
        tx.check()?;
        assert!(tx.remaining() > std::time::Duration::ZERO);
        stage.lapse();
        tx.check()?;
        Ok(())
    });
    assert!(matches!(
        outcome,
        Err(RunError::RolledBack {
            cause: Cause::Lease(LeaseError::Lost(Ended::Lapsed)),
            ..
        })
    ));
}

#[test]
fn the_commit_budget_is_kept_at_the_commit() {
    let stage = Stage::new();
    let budget = leasehold::Settings::default().commit_budget;
    let run = |leave| {
        stage.hold.renew(TTL);
        stage.executor.guarded(|_| {
            stage.clock.advance(stage.hold.lease().remaining() - leave);
            Ok(())
        })
    };
    assert_eq!(run(budget).unwrap().slack, budget);
    assert!(matches!(
        run(budget - std::time::Duration::from_nanos(1)),
        Err(RunError::RolledBack {
            cause: Cause::Lease(LeaseError::TooShort { .. }),
            ..
        })
    ));
}

#[test]
fn hooks_after_the_commit_get_its_receipt_and_harm_nobody() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let outcome = stage.executor.guarded(|tx| {
        tx.on_committed(|receipt| trace.add(format!("{:?}", receipt.proof)));
        tx.on_committed(|_| panic!("in a hook"));
        tx.on_committed(|receipt| {
            assert_eq!(receipt.txn_id, None);
            assert!(stage.is_drained(), "the run is over");
            trace.add("last");
        });
        Ok(7)
    });
    assert_eq!(outcome.unwrap().value, 7);
    assert_eq!(trace.all(), ["Some(WithinLease)", "last"]);

    let reported = &trace;
    let late = stage.executor.guarded(|tx| {
        let txn_id = tx.txn_id()?;
        tx.on_committed(move |receipt| {
            assert_eq!((receipt.proof, receipt.txn_id), (None, Some(txn_id)));
            reported.add("late");
        });
        tx.commit_with(|_| {
            stage.lapse();
            Ok(())
        });
        Ok(())
    });
    assert!(matches!(late, Err(RunError::CommittedLate { .. })));
    assert_eq!(trace.all().last().unwrap(), "late");

    let failed = stage.hold.executor().guarded(|tx| -> Result<(), Abort> {
        tx.on_committed(|_| panic!("nothing was committed"));
        Err("no".into())
    });
    assert!(failed.is_err());
}

#[test]
fn an_error_of_the_work_comes_out_as_its_own_type() {
    #[derive(Debug, PartialEq, thiserror::Error)]
    #[error("{0} cents are missing")]
    struct NoFunds(u32);
    let stage = Stage::new();
    let outcome = (stage.executor).guarded(|_| -> Result<(), Abort> { Err(NoFunds(7).into()) });
    let Err(RunError::RolledBack {
        cause: Cause::Failed(error),
        ..
    }) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.downcast_ref(), Some(&NoFunds(7)));
}

#[test]
fn work_may_spread_over_threads() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    gauge.add(1);
                    tx.undo(|| gauge.add(-1));
                });
            }
        });
        assert_eq!(gauge.value(), 4);
        Err("no".into())
    });
    assert_eq!(outcome.unwrap_err().undo().unwrap().results().len(), 4);
    assert_eq!(gauge.value(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_awaited_run_is_sent_between_threads() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (executor, cell, gauge) = (stage.executor.clone(), cell.clone(), Gauge::default());
            tokio::spawn(async move {
                let borrowed = String::from("borrowed by the work");
                loop {
                    let undone = gauge.clone();
                    let outcome = executor
                        .guarded_async(async |tx| {
                            tx.undo(move || undone.add(1));
                            tx.check()?;
                            tokio::task::yield_now().await;
                            tx.step("ask", async { Ok(borrowed.len()) }, async |_| ())
                                .await?;
                            *tx.write(&cell) += 1;
                            tx.commit_with(async |_| {
                                tokio::task::yield_now().await;
                                Ok(())
                            });
                            Ok(())
                        })
                        .await;
                    match outcome {
                        Ok(_) => return gauge.value(),
                        Err(RunError::RolledBack {
                            cause: Cause::Conflict,
                            ..
                        }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap() >= 0);
    }
    assert_eq!(*cell.read(), 8);
}

#[tokio::test]
async fn an_end_waits_for_an_awaited_run() {
    let stage = Stage::new();
    let run = stage.executor.guarded_async(async |_| {
        pause().await;
        Ok(())
    });
    let mut run = std::pin::pin!(run);
    assert!(poll_once(run.as_mut()).is_pending());
    stage.hold.close();
    assert!(!stage.is_drained());
    assert!(matches!(
        run.await,
        Err(RunError::RolledBack {
            cause: Cause::Lease(LeaseError::Ending),
            ..
        })
    ));
    assert!(stage.is_drained());
}

/// Compiles or does not: what may be sent to and shared by threads.
#[test]
fn public_types_are_send_and_sync_as_they_say() {
    fn send<T: Send>() {}
    fn both<T: Send + Sync>() {}
    fn send_value<T: Send>(_: &T) {}
    both::<Executor>();
    both::<Tx<'_>>();
    both::<AsyncTx>();
    both::<GuardedCell<u8>>();
    both::<Committed<u8>>();
    both::<RunError<u8>>();
    both::<Abort>();
    send::<Staged<'_, u8>>();

    let stage = Stage::new();
    let name = String::from("not 'static");
    let future = stage.executor.guarded_async(async |tx| {
        let staged = tx.write(&GuardedCell::new(1));
        pause().await;
        drop(staged);
        tx.step("ask", async { Ok(name.len()) }, async |_| ())
            .await?;
        Ok(name.len())
    });
    send_value(&future);
}
