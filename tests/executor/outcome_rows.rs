//! One test for each row of the table of outcomes, for blocking and for awaited runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::executor_support::{Gauge, PAST, Stage, pause, poll_then_drop, token};
use leasehold::executor::{Applied, CommitProof, DebtState, EffectError};
use leasehold::{Cause, Committed, GuardedCell, LeaseError, LostReason, RunError};

/// The seven outcomes by name, so that a test says its row in one word.
fn name<T, E>(outcome: &Result<Committed<T>, RunError<T, E>>) -> &'static str {
    match outcome {
        Ok(committed) => match committed.proof {
            CommitProof::WithinLease => "committed within the lease",
            CommitProof::Fenced => "committed, fenced",
            CommitProof::Local => "committed, local",
            _ => "?",
        },
        Err(RunError::NotStarted { .. }) => "not started",
        Err(RunError::RolledBack { .. }) => "rolled back",
        Err(RunError::Incomplete { .. }) => "incomplete",
        Err(RunError::Fenced { .. }) => "fenced",
        Err(RunError::InDoubt { .. }) => "in doubt",
        Err(RunError::CommittedLate { .. }) => "committed late",
        Err(_) => "?",
    }
}

const LAPSED: LeaseError = LeaseError::Lost(LostReason::Lapsed);

mod blocking {
    use super::*;

    #[test]
    fn not_started_when_the_lease_is_over() {
        let stage = Stage::new();
        stage.lapse();
        let outcome = stage
            .executor
            .guarded(|_| -> Result<(), _> { panic!("the work may not be called") });
        let Err(RunError::NotStarted { why }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert_eq!(*why, LAPSED);
        assert_eq!(outcome.unwrap_err().was_applied(), Some(false));
    }

    #[test]
    fn not_started_when_less_than_the_commit_budget_is_left() {
        let stage = Stage::new();
        let left = stage.hold.lease().remaining();
        stage.clock.advance(left - Duration::from_millis(9));
        let outcome = stage.executor.guarded(|_| Ok(()));
        let Err(RunError::NotStarted { why }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert_eq!(
            *why,
            LeaseError::TooShort {
                remaining: Duration::from_millis(9),
                needed: Duration::from_millis(10),
            }
        );
        assert!(stage.hold.lease().is_live());
    }

    #[test]
    fn not_started_when_the_hold_is_ending() {
        let stage = Stage::new();
        stage.hold.close();
        let outcome = stage.executor.guarded(|_| Ok(()));
        assert!(matches!(
            outcome,
            Err(RunError::NotStarted {
                why: LeaseError::Ending
            })
        ));
        assert!(stage.is_drained());
    }

    #[test]
    fn rolled_back_when_the_work_fails() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            Err("no funds".into())
        });
        let Err(RunError::RolledBack { cause, undo }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert!(matches!(cause, Cause::Failed(error) if error.to_string() == "no funds"));
        assert_eq!((undo.results().len(), undo.is_complete()), (1, true));
        assert_eq!(gauge.value(), 0);
        assert_eq!(outcome.unwrap_err().was_applied(), Some(false));
    }

    #[test]
    fn rolled_back_when_the_lease_lapsed_before_the_commit() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let outcome = stage.executor.guarded(|tx| {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            stage.lapse();
            Ok(())
        });
        let Err(RunError::RolledBack { cause, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert!(matches!(cause, Cause::Lease(why) if *why == LAPSED));
        assert_eq!(gauge.value(), 0);
    }

    #[test]
    fn rolled_back_when_the_commit_proves_that_it_was_not_applied() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let outcome = stage.executor.guarded(|tx| {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            tx.commit_with(|_| Err::<(), _>(EffectError::not_applied("unique key")));
            Ok(())
        });
        let Err(RunError::RolledBack { cause, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert!(matches!(cause, Cause::NotApplied(error) if error.to_string() == "unique key"));
        assert_eq!(gauge.value(), 0);
        assert!(!stage.hold.lease().is_in_doubt());
    }

    #[test]
    fn incomplete_when_an_undo_failed() {
        let stage = Stage::new();
        let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
            tx.undo(|| Err::<(), _>("the disk is gone"));
            Err("no funds".into())
        });
        assert_eq!(name(&outcome), "incomplete");
        let error = outcome.unwrap_err();
        assert_eq!(error.was_applied(), None);
        assert!(!error.undo().unwrap().is_complete());
    }

    #[test]
    fn incomplete_when_a_compensation_could_not_soundly_run() {
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
            stage.lapse();
            Ok(())
        });
        assert_eq!(name(&outcome), "incomplete");
        let error = outcome.unwrap_err();
        assert!(matches!(error.cause(), Some(Cause::Lease(_))));
        assert_eq!(&*error.debts()[0].intent, "debit 7");
        assert!(matches!(error.debts()[0].state, DebtState::Owed));
        assert_eq!(outside.value(), -10);
        assert_eq!(stage.hold.debts().len(), 1, "the hold is told of it too");
    }

    #[test]
    fn fenced_when_the_fence_refuses_the_first_send() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let outcome = stage.executor.guarded(|tx| {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            tx.commit_with(|_| {
                Err::<(), _>(EffectError::Fenced {
                    seen: Some(token(6)),
                })
            });
            Ok(())
        });
        let Err(RunError::Fenced { seen, undo }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert_eq!(*seen, Some(token(6)));
        assert!(undo.is_complete());
        assert_eq!(gauge.value(), 0);
        assert_eq!(outcome.unwrap_err().was_applied(), Some(false));
    }

    #[test]
    fn in_doubt_when_the_commit_does_not_know() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let mut sent = None;
        let outcome = stage.executor.guarded(|tx| {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            tx.commit_with(|permit| {
                sent = Some(permit.txn_id);
                // A bare `?` is enough to mean "unknown".
                Err(std::io::Error::other("connection reset"))?;
                Ok(())
            });
            Ok(())
        });
        let Err(RunError::InDoubt { txn_id, token, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert_eq!(Some(*txn_id), sent);
        assert_eq!(*token, crate::executor_support::token(5));
        assert_eq!(gauge.value(), 0, "what is local is taken back");
        assert!(stage.hold.lease().is_in_doubt());
        assert_eq!(outcome.unwrap_err().was_applied(), None);
    }

    #[test]
    fn committed_late_when_the_lease_was_over_after_the_commit() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let left = stage.hold.lease().remaining();
        let outcome = stage.executor.guarded(|tx| {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            tx.commit_with(|permit| {
                assert_eq!(permit.remaining, left);
                stage.clock.advance(left + Duration::from_millis(3));
                Ok(())
            });
            Ok("the value")
        });
        let Err(RunError::CommittedLate { value, late_by, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert_eq!(*value, "the value");
        assert_eq!(*late_by, Duration::from_millis(3));
        assert_eq!(gauge.value(), 1, "applied is applied");
        assert_eq!(outcome.unwrap_err().was_applied(), Some(true));
    }

    #[test]
    fn committed_within_the_lease() {
        let stage = Stage::new();
        let left = stage.hold.lease().remaining();
        let noop = stage.executor.guarded(|_| Ok(7));
        assert_eq!(name(&noop), "committed within the lease");
        let committed = noop.unwrap();
        assert_eq!(
            (committed.value, committed.token, committed.slack),
            (7, token(5), left)
        );

        let called = stage.executor.guarded(|tx| {
            tx.commit_with(|_| Ok(()));
            Ok(())
        });
        assert_eq!(name(&called), "committed within the lease");
    }

    #[test]
    fn committed_when_the_fence_accepted_however_late() {
        let stage = Stage::new();
        let outcome = stage.executor.guarded(|tx| {
            tx.commit_with(|_| {
                stage.lapse();
                Ok(Applied::fenced())
            });
            Ok(())
        });
        assert_eq!(name(&outcome), "committed, fenced");
    }

    #[test]
    fn committed_in_cells_of_this_process() {
        let (stage, cell) = (Stage::new(), GuardedCell::new(1));
        let outcome = stage.executor.guarded(|tx| {
            *tx.write(&cell) = 2;
            Ok(())
        });
        assert_eq!(name(&outcome), "committed, local");
        assert_eq!(*cell.read(), 2);
    }

    #[test]
    fn a_panic_takes_back_and_goes_on() {
        let (stage, gauge, outside) = (Stage::new(), Gauge::default(), Gauge::default());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            stage.executor.guarded(|tx| -> Result<(), _> {
                gauge.set(1);
                tx.undo(|| gauge.set(0));
                tx.step(
                    "debit 7",
                    || {
                        outside.add(-10);
                        Ok(())
                    },
                    |_| outside.add(10),
                )?;
                tx.step("ask", || Ok(()), |_| Err::<(), _>("unreachable"))?;
                panic!("in the work")
            })
        }));
        let payload = panicked.unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "in the work");
        assert_eq!((gauge.value(), outside.value()), (0, 0));
        let debts = stage.hold.debts();
        assert_eq!(debts.len(), 1, "what no outcome can hold goes to the hold");
        assert!(matches!(debts[0].state, DebtState::Failed(_)));
        assert!(stage.is_drained());
    }

    #[test]
    fn a_panic_in_the_commit_is_in_doubt() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            stage.executor.guarded(|tx| {
                gauge.set(1);
                tx.undo(|| gauge.set(0));
                tx.commit_with(|_| -> Result<(), _> { panic!("in the commit") });
                Ok(())
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(gauge.value(), 0);
        assert!(stage.hold.lease().is_in_doubt());
        assert!(matches!(stage.hold.debts()[0].state, DebtState::InDoubt));
        assert!(stage.is_drained());
    }
}

mod awaited {
    use super::*;

    #[tokio::test]
    async fn not_started_when_the_lease_is_over() {
        let stage = Stage::new();
        stage.lapse();
        let outcome = stage
            .executor
            .guarded_async(async |_| -> Result<(), _> { panic!("the work may not be polled") })
            .await;
        assert!(matches!(outcome, Err(RunError::NotStarted { why }) if why == LAPSED));
    }

    #[tokio::test]
    async fn not_started_when_less_than_the_commit_budget_is_left() {
        let stage = Stage::new();
        let left = stage.hold.lease().remaining();
        stage.clock.advance(left - Duration::from_millis(9));
        let outcome = stage.executor.guarded_async(async |_| Ok(())).await;
        assert!(matches!(
            outcome,
            Err(RunError::NotStarted {
                why: LeaseError::TooShort { .. }
            })
        ));
    }

    #[tokio::test]
    async fn not_started_when_the_hold_is_ending() {
        let stage = Stage::new();
        stage.hold.close();
        let outcome = stage.executor.guarded_async(async |_| Ok(())).await;
        assert!(matches!(
            outcome,
            Err(RunError::NotStarted {
                why: LeaseError::Ending
            })
        ));
        assert!(stage.is_drained());
    }

    #[tokio::test]
    async fn rolled_back_when_the_work_fails() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let outcome = stage
            .executor
            .guarded_async(async |tx| -> Result<(), _> {
                gauge.set(1);
                let undone = gauge.clone();
                tx.undo(move || undone.set(0));
                pause().await;
                Err("no funds".into())
            })
            .await;
        assert_eq!(name(&outcome), "rolled back");
        assert_eq!(gauge.value(), 0);
    }

    #[tokio::test]
    async fn rolled_back_when_the_lease_lapsed_before_the_commit() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                gauge.set(1);
                let undone = gauge.clone();
                tx.undo(move || undone.set(0));
                stage.lapse();
                Ok(())
            })
            .await;
        let Err(RunError::RolledBack { cause, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert!(matches!(cause, Cause::Lease(why) if *why == LAPSED));
        assert_eq!(gauge.value(), 0);
    }

    #[tokio::test]
    async fn rolled_back_when_the_commit_proves_that_it_was_not_applied() {
        let stage = Stage::new();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                tx.commit_with(async |_| Err::<(), _>(EffectError::not_applied("unique key")));
                Ok(())
            })
            .await;
        let Err(RunError::RolledBack { cause, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert!(matches!(cause, Cause::NotApplied(_)));
        assert!(!stage.hold.lease().is_in_doubt());
    }

    #[tokio::test]
    async fn incomplete_when_an_undo_failed() {
        let stage = Stage::new();
        let outcome = stage
            .executor
            .guarded_async(async |tx| -> Result<(), _> {
                tx.undo(|| Err::<(), _>("the disk is gone"));
                Err("no funds".into())
            })
            .await;
        assert_eq!(name(&outcome), "incomplete");
    }

    #[tokio::test]
    async fn incomplete_when_a_compensation_could_not_soundly_run() {
        let (stage, outside) = (Stage::new(), Gauge::default());
        let undone = outside.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                let debit = async {
                    outside.add(-10);
                    Ok(())
                };
                tx.step("debit 7", debit, async move |_| undone.add(10))
                    .await?;
                stage.lapse();
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "incomplete");
        let error = outcome.unwrap_err();
        assert!(matches!(error.debts()[0].state, DebtState::Owed));
        assert_eq!(outside.value(), -10);
        assert_eq!(stage.hold.debts().len(), 1);
    }

    #[tokio::test]
    async fn fenced_when_the_fence_refuses_the_first_send() {
        let stage = Stage::new();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                tx.commit_with(async |_| Err::<(), _>(EffectError::Fenced { seen: None }));
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "fenced");
    }

    #[tokio::test]
    async fn in_doubt_when_the_commit_does_not_know() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let undone = gauge.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                gauge.set(1);
                tx.undo(move || undone.set(0));
                tx.commit_with(async |_| {
                    Err(std::io::Error::other("connection reset"))?;
                    Ok(())
                });
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "in doubt");
        assert_eq!(gauge.value(), 0);
        assert!(stage.hold.lease().is_in_doubt());
    }

    #[tokio::test]
    async fn in_doubt_when_the_commit_is_not_answered_within_the_lease() {
        let stage = Stage::new();
        let clock = stage.clock.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                tx.commit_with(async move |permit| {
                    pause().await;
                    clock.advance(permit.remaining);
                    std::future::pending::<Result<(), EffectError>>().await
                });
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "in doubt");
        assert!(stage.hold.lease().is_in_doubt());
    }

    #[tokio::test]
    async fn fenced_when_the_call_was_sent_late_and_the_fence_answers_after_a_while() {
        let stage = Stage::new();
        let clock = stage.clock.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                // The process was stopped between the check and the call.
                tx.commit_with(async move |_| {
                    clock.advance(PAST);
                    pause().await;
                    Err::<(), _>(EffectError::Fenced { seen: None })
                });
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "fenced");
    }

    #[tokio::test]
    async fn in_doubt_when_the_call_was_sent_late_and_nobody_answers() {
        let stage = Stage::new();
        let clock = stage.clock.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                tx.commit_with(async move |_| {
                    clock.advance(PAST);
                    pause().await;
                    clock.advance(Duration::from_secs(1));
                    std::future::pending::<Result<(), EffectError>>().await
                });
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "in doubt");
    }

    #[tokio::test]
    async fn committed_late_when_the_lease_was_over_after_the_commit() {
        let stage = Stage::new();
        let clock = stage.clock.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                tx.commit_with(async move |permit| {
                    clock.advance(permit.remaining + Duration::from_millis(3));
                    Ok(())
                });
                Ok("the value")
            })
            .await;
        let Err(RunError::CommittedLate { value, late_by, .. }) = &outcome else {
            panic!("{}", name(&outcome));
        };
        assert_eq!((*value, *late_by), ("the value", Duration::from_millis(3)));
    }

    #[tokio::test]
    async fn committed_within_the_lease() {
        let stage = Stage::new();
        let noop = stage.executor.guarded_async(async |_| Ok(7)).await;
        assert_eq!(name(&noop), "committed within the lease");
        let called = stage.executor.guarded_async(async |tx| {
            tx.commit_with(async |_| {
                pause().await;
                Ok(())
            });
            Ok(())
        });
        assert_eq!(name(&called.await), "committed within the lease");
    }

    #[tokio::test]
    async fn committed_when_the_fence_accepted_however_late() {
        let stage = Stage::new();
        let clock = stage.clock.clone();
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                tx.commit_with(async move |_| {
                    clock.advance(PAST);
                    Ok(Applied::fenced())
                });
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "committed, fenced");
    }

    #[tokio::test]
    async fn committed_in_cells_of_this_process() {
        let (stage, cell) = (Stage::new(), GuardedCell::new(1));
        let outcome = stage
            .executor
            .guarded_async(async |tx| {
                *tx.write(&cell) = 2;
                Ok(())
            })
            .await;
        assert_eq!(name(&outcome), "committed, local");
        assert_eq!(*cell.read(), 2);
    }

    #[tokio::test]
    async fn a_panic_takes_back_and_goes_on() {
        let (stage, gauge, outside) = (Stage::new(), Gauge::default(), Gauge::default());
        let (gauge_undo, outside_undo) = (gauge.clone(), outside.clone());
        let run = stage.executor.guarded_async(async |tx| -> Result<(), _> {
            gauge.set(1);
            tx.undo(move || gauge_undo.set(0));
            let debit = async {
                outside.add(-10);
                Ok(())
            };
            tx.step("debit 7", debit, async move |_| outside_undo.add(10))
                .await?;
            let lost = async { Err::<(), _>(EffectError::unknown("no answer")) };
            // The work may catch the doubt; the debt stays.
            let _ = tx.step("ask", lost, async |_| ()).await;
            panic!("in the work")
        });
        let payload = futures_util::FutureExt::catch_unwind(AssertUnwindSafe(run))
            .await
            .unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "in the work");
        assert_eq!((gauge.value(), outside.value()), (0, 0));
        let debts = stage.hold.debts();
        assert_eq!(debts.len(), 1);
        assert!(matches!(debts[0].state, DebtState::InDoubt));
        assert!(stage.is_drained());
    }

    #[tokio::test]
    async fn a_panic_in_the_commit_is_in_doubt() {
        let (stage, gauge) = (Stage::new(), Gauge::default());
        let undone = gauge.clone();
        let run = stage.executor.guarded_async(async |tx| {
            gauge.set(1);
            tx.undo(move || undone.set(0));
            tx.commit_with(async |_| -> Result<(), _> { panic!("in the commit") });
            Ok(())
        });
        let panicked = futures_util::FutureExt::catch_unwind(AssertUnwindSafe(run)).await;
        assert!(panicked.is_err());
        assert_eq!(gauge.value(), 0);
        assert!(stage.hold.lease().is_in_doubt());
        assert!(matches!(stage.hold.debts()[0].state, DebtState::InDoubt));
        assert!(stage.is_drained());
    }

    #[tokio::test]
    async fn a_dropped_future_takes_back_at_once_and_hands_on_what_must_await() {
        let (stage, gauge, outside) = (Stage::new(), Gauge::default(), Gauge::default());
        let (gauge_undo, outside_undo) = (gauge.clone(), outside.clone());
        let run = stage.executor.guarded_async(async |tx| -> Result<(), _> {
            gauge.set(1);
            tx.undo(move || gauge_undo.set(0));
            let debit = async {
                outside.add(-10);
                Ok(())
            };
            tx.step("debit 7", debit, async move |_| outside_undo.add(10))
                .await?;
            std::future::pending().await
        });
        assert!(poll_then_drop(3, run).is_none());
        assert_eq!(gauge.value(), 0, "local undo ran in the drop");
        assert_eq!(outside.value(), -10);
        assert!(stage.is_drained());
        assert_eq!(stage.hold.run_compensations().await, 1);
        assert_eq!(outside.value(), 0);
        assert!(stage.hold.debts().is_empty());
    }
}
