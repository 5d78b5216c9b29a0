//! Undo: its order, its failures, and what it may not do.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crate::executor_support::{Gauge, Stage, Trace, pause};
use leasehold::run::{DebtState, Effect, EffectError, StepError, UndoResult};
use leasehold::{Cause, Ended, ErrorKind, GuardedCell, RunError};

fn gives_up() -> leasehold::Abort {
    "no funds".into()
}

fn panics(why: &str) {
    panic!("{why}");
}

#[test]
fn hooks_and_compensations_run_newest_first_in_one_order() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        tx.undo(|| trace.add("first"));
        tx.step("second", || Ok(()), |_| trace.add("second"))?;
        tx.undo(|| trace.add("third"));
        Err(gives_up())
    });
    assert_eq!(trace.all(), ["third", "second", "first"]);
    let error = outcome.unwrap_err();
    let intents: Vec<_> = error
        .undo()
        .unwrap()
        .results()
        .iter()
        .map(|u| u.intent.as_deref())
        .collect();
    assert_eq!(intents, [None, Some("second"), None]);
}

#[test]
fn a_failing_or_panicking_hook_does_not_stop_the_next() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        tx.undo(|| trace.add("oldest"));
        tx.undo(|| panics("hook 2"));
        tx.step("ask", || Ok(()), |_| panics("compensation"))?;
        tx.undo(|| Err::<(), _>("the disk is gone"));
        Err(gives_up())
    });
    assert_eq!(trace.all(), ["oldest"]);
    let error = outcome.unwrap_err();
    let results: Vec<_> = error
        .undo()
        .unwrap()
        .results()
        .iter()
        .map(|u| &u.result)
        .collect();
    assert!(
        matches!(
            results[..],
            [
                UndoResult::Failed(failed),
                UndoResult::Panicked(compensation),
                UndoResult::Panicked(hook),
                UndoResult::Done,
            ] if failed.to_string() == "the disk is gone" && compensation == "compensation" && hook == "hook 2"
        ),
        "{results:?}"
    );
    assert!(matches!(error.debts()[0].state, DebtState::Failed(_)));
    assert!(
        stage.hold.lease().is_in_doubt(),
        "half a compensation may land yet"
    );
}

#[test]
fn nothing_is_undone_after_a_commit() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let outcome = stage.executor.guarded(|tx| {
        tx.undo(|| trace.add("undo"));
        tx.step("ask", || Ok(()), |_| trace.add("compensate"))?;
        Ok(())
    });
    outcome.unwrap().into_value();
    assert!(trace.all().is_empty());
}

#[test]
fn a_snapshot_is_put_back() {
    let stage = Stage::new();
    let (mutex, rwlock) = (Mutex::new(1), RwLock::new(vec![1]));
    let (lot, lots) = (parking_lot::Mutex::new("a"), parking_lot::RwLock::new('a'));
    let atomic = Arc::new(AtomicU32::new(1));
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        tx.snapshot(&mutex);
        tx.snapshot(&rwlock);
        tx.snapshot(&lot);
        tx.snapshot(&lots);
        tx.snapshot(Arc::clone(&atomic));
        *mutex.lock().unwrap() = 2;
        rwlock.write().unwrap().push(2);
        *lot.lock() = "b";
        *lots.write() = 'b';
        atomic.store(2, Ordering::SeqCst);
        // The oldest wins: a later snapshot of the same thing does not hide it.
        tx.snapshot(&mutex);
        *mutex.lock().unwrap() = 3;
        Err(gives_up())
    });
    assert!(matches!(outcome, Err(RunError::RolledBack { .. })));
    assert_eq!(*mutex.lock().unwrap(), 1);
    assert_eq!(*rwlock.read().unwrap(), [1]);
    assert_eq!((*lot.lock(), *lots.read()), ("a", 'a'));
    assert_eq!(atomic.load(Ordering::SeqCst), 1);
}

#[test]
fn an_intent_is_reported_before_the_effect_is_sent() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| {
        tx.step(
            "debit 7",
            || {
                let intents = stage.hold.intents();
                assert_eq!(&*intents[0].intent, "debit 7");
                assert_eq!(intents[0].txn_id, tx.txn_id()?);
                Ok(())
            },
            |_| (),
        )?;
        Ok(())
    });
    outcome.unwrap().into_value();
}

#[test]
fn a_step_without_a_live_lease_sends_nothing() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        stage.hold.revoke(Ended::Gone);
        tx.step("debit 7", || -> Result<(), _> { panic!("sent") }, |_| ())?;
        Ok(())
    });
    assert!(stage.hold.intents().is_empty());
    assert!(matches!(
        outcome,
        Err(RunError::RolledBack {
            cause: Cause::Lease(_),
            ..
        })
    ));
}

#[test]
fn a_step_in_doubt_is_a_debt_and_never_not_applied() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        tx.step(
            "debit 7",
            || {
                Err(std::io::Error::other("connection reset"))?;
                Ok(())
            },
            |_| panics("what is in doubt may not be compensated"),
        )?;
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert_eq!(error.was_applied(), None);
    assert!(matches!(error.debts()[0].state, DebtState::InDoubt));
    assert!(stage.hold.lease().is_in_doubt());
}

#[test]
fn a_run_whose_work_ignores_a_step_in_doubt_does_not_commit() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(0));
    let outcome = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 1;
        let step = tx.step("ask", || Err::<(), _>(EffectError::unknown("?")), |_| ());
        assert!(matches!(step, Err(StepError::InDoubt(_))));
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.cause(), Some(Cause::StepInDoubt)));
    assert_eq!((error.was_applied(), *cell.read()), (None, 0));
}

#[test]
fn a_step_that_proves_it_was_not_applied_owes_nothing() {
    let stage = Stage::new();
    let refused = stage.executor.guarded(|tx| {
        let step = tx.step(
            "ask",
            || Err::<(), _>(EffectError::not_applied("no such account")),
            |_| panics("nothing is to be compensated"),
        );
        assert!(matches!(step, Err(StepError::NotApplied(_))));
        Ok(())
    });
    refused.unwrap().into_value();
    assert!(!stage.hold.lease().is_in_doubt());
}

#[test]
fn a_fenced_step_is_compensated_even_after_the_lease() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    let outcome = stage.executor.guarded(|tx| {
        let debit = || {
            outside.add(-10);
            Ok(())
        };
        tx.step(Effect::new("debit 7").fenced(), debit, |given| {
            assert_eq!(given.token, crate::executor_support::token(5));
            outside.add(10);
        })?;
        stage.lapse();
        Ok(())
    });
    assert!(matches!(outcome, Err(RunError::RolledBack { .. })));
    assert_eq!(outside.value(), 0);
}

#[test]
fn a_compensation_that_ends_after_the_lease_is_not_believed() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        tx.step("debit 7", || Ok(()), |_| stage.lapse())?;
        Err(gives_up())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.debts()[0].state, DebtState::Failed(_)));
}

#[test]
fn who_is_fenced_out_compensates_nothing_that_is_not_fenced() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    let outcome = stage.executor.guarded(|tx| {
        let undo = |_| panics("a newer holder may have acted on it");
        tx.step("plain", || Ok(()), undo)?;
        tx.step(
            Effect::new("fenced").fenced(),
            || Ok(()),
            |_| outside.add(1),
        )?;
        tx.commit_with(|_| Err::<(), _>(EffectError::Fenced { seen: None }));
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.cause(), Some(Cause::Fenced { .. })));
    assert!(matches!(error.debts()[0].state, DebtState::Owed));
    assert_eq!(outside.value(), 1);
}

#[test]
fn after_a_commit_in_doubt_the_steps_are_left_as_they_are() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| {
        let undo = |_| panics("it may belong to what is committed");
        tx.step("debit 7", || Ok(()), undo)?;
        tx.commit_with(|_| Err::<(), _>(EffectError::unknown("time-out")));
        Ok(())
    });
    let Err(RunError::InDoubt { undo, .. }) = outcome else {
        panic!("not in doubt");
    };
    assert!(matches!(undo.debts()[0].state, DebtState::Undecided));
    assert_eq!(stage.hold.debts().len(), 2, "the commit and the step");
}

#[test]
fn what_comes_after_the_commit_was_named_is_refused_and_undone() {
    let stage = Stage::new();
    let (gauge, cell) = (Gauge::default(), GuardedCell::new(0));
    for call in ["undo", "write", "step", "commit_with", "snapshot"] {
        gauge.set(0);
        let outcome = stage.executor.guarded(|tx| {
            tx.commit_with(|_| -> Result<(), _> { panic!("committed against the rules") });
            match call {
                "undo" => {
                    gauge.set(1);
                    tx.undo(|| gauge.set(0));
                }
                "write" => *tx.write(&cell) = 1,
                "step" => {
                    let step = tx.step("s", || -> Result<(), _> { panic!("sent") }, |_| ());
                    assert!(matches!(step, Err(StepError::Refused(_))));
                }
                "snapshot" => tx.snapshot(Arc::new(AtomicU32::new(0))),
                _ => drop(tx.commit_with(|_| Ok(()))),
            }
            Ok(())
        });
        let Err(RunError::RolledBack {
            cause: Cause::Refused(error),
            ..
        }) = outcome
        else {
            panic!("{call}");
        };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(call), "{error}");
        assert_eq!((gauge.value(), *cell.read()), (0, 0));
    }
}

#[tokio::test]
async fn a_step_whose_reply_never_comes_is_in_doubt_once_the_lease_is_over() {
    let stage = Stage::new();
    let outcome = {
        let run = stage.executor.guarded_async(async |tx| {
            let silent = std::future::pending::<Result<(), EffectError>>();
            tx.step("debit 7", silent, async |_| ()).await?;
            Ok(())
        });
        let mut run = std::pin::pin!(run);
        assert!(crate::executor_support::poll_once(run.as_mut()).is_pending());
        // A renewal prolongs the wait.
        stage.clock.advance(crate::executor_support::TTL / 2);
        assert!(stage.hold.renew(crate::executor_support::TTL));
        stage.clock.advance(crate::executor_support::TTL / 2);
        assert!(crate::executor_support::poll_once(run.as_mut()).is_pending());
        stage.lapse();
        run.await
    };
    let error = outcome.unwrap_err();
    assert_eq!(error.was_applied(), None);
    assert!(matches!(error.debts()[0].state, DebtState::InDoubt));
    assert!(stage.hold.lease().is_in_doubt());
}

#[tokio::test]
async fn a_compensation_has_what_is_left_of_the_lease_and_no_more() {
    let stage = Stage::new();
    let clock = stage.clock.clone();
    let outcome = stage
        .executor
        .guarded_async(async |tx| -> Result<(), _> {
            tx.step("debit 7", async { Ok(()) }, async move |given| {
                pause().await;
                clock.advance(given.remaining);
                std::future::pending::<()>().await;
            })
            .await?;
            Err(gives_up())
        })
        .await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.debts()[0].state, DebtState::Failed(_)));
    assert!(stage.hold.lease().is_in_doubt());
}

#[tokio::test]
async fn a_step_future_that_the_work_drops_is_in_doubt() {
    let stage = Stage::new();
    let outcome = stage
        .executor
        .guarded_async(async |tx| {
            let silent = std::future::pending::<Result<(), EffectError>>();
            let step = tx.step("debit 7", silent, async |_| ());
            assert!(crate::executor_support::poll_then_drop(1, step).is_none());
            Ok(())
        })
        .await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.cause(), Some(Cause::StepInDoubt)));
    assert!(matches!(error.debts()[0].state, DebtState::InDoubt));
}

#[test]
fn a_hook_that_panics_while_the_work_panics_does_not_stop_the_next() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stage.executor.guarded(|tx| -> Result<(), _> {
            tx.undo(|| trace.add("oldest"));
            tx.undo(|| panics("in a hook"));
            panic!("in the work")
        })
    }));
    let payload = panicked.unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "in the work");
    assert_eq!(trace.all(), ["oldest"]);
    assert!(stage.is_drained());
}
