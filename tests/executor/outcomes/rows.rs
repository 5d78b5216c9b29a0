//! One test for each row of the table of outcomes.

use std::time::Duration;

use leasehold::run::{Applied, DebtState, EffectError};
use leasehold::{Cause, GuardedCell, LeaseError, RunError};

use super::{LAPSED, name};
use crate::executor_support::{Gauge, Stage, token};

#[tokio::test]
async fn not_started_when_the_lease_is_over() {
    let stage = Stage::new();
    stage.lapse();
    let outcome = run!(stage, |_| -> Result<(), _> {
        panic!("the work may not be called")
    });
    let Err(RunError::NotStarted { why }) = &outcome else {
        panic!("{}", name(&outcome));
    };
    assert_eq!(*why, LAPSED);
    assert_eq!(outcome.unwrap_err().was_applied(), Some(false));
}

#[tokio::test]
async fn not_started_when_less_than_the_commit_budget_is_left() {
    let stage = Stage::new();
    let left = stage.hold.lease().remaining();
    stage.clock.advance(left - Duration::from_millis(9));
    let outcome = run!(stage, |_| { Ok(()) });
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

#[tokio::test]
async fn not_started_when_the_hold_is_ending() {
    let stage = Stage::new();
    stage.hold.close();
    let outcome = run!(stage, |_| { Ok(()) });
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
    let outcome = run!(stage, |tx| -> Result<(), _> {
        gauge.raise_in(tx);
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

#[tokio::test]
async fn rolled_back_when_the_lease_lapsed_before_the_commit() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let outcome = run!(stage, |tx| {
        gauge.raise_in(tx);
        stage.lapse();
        Ok(())
    });
    let Err(RunError::RolledBack { cause, .. }) = &outcome else {
        panic!("{}", name(&outcome));
    };
    assert!(matches!(cause, Cause::Lease(why) if *why == LAPSED));
    assert_eq!(gauge.value(), 0);
}

/// The words of every outcome in which nothing was undone because nothing was noted.
const OUTSIDE: &str = "nothing was noted; what the work did outside of its tx was not undone";

#[tokio::test]
async fn what_the_work_did_outside_of_its_tx_is_said_to_stand() {
    let stage = Stage::new();
    let written = std::sync::atomic::AtomicBool::new(false);
    let failed = run!(stage, |_| -> Result<(), _> { Err("no funds".into()) });
    let only_hooks_of_a_commit = run!(stage, |tx| -> Result<(), _> {
        tx.on_committed(|_| ());
        Err("no funds".into())
    });
    let fenced = run!(stage, |tx| -> Result<(), _> {
        let _ = step!(
            tx,
            "debit",
            { Err::<(), _>(EffectError::Fenced { seen: None }) },
            ()
        );
        tx.check()?;
        Err("no funds".into())
    });
    let lapsed = run!(stage, |_| {
        written.store(true, std::sync::atomic::Ordering::SeqCst);
        stage.lapse();
        Ok(())
    });
    assert!(written.into_inner());
    for outcome in [failed, only_hooks_of_a_commit, lapsed] {
        let text = outcome.unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("rolled back, {OUTSIDE}: ")),
            "{text}"
        );
    }
    let text = fenced.unwrap_err().to_string();
    assert!(!text.contains(OUTSIDE), "a step was noted: {text}");
}

#[tokio::test]
async fn what_the_work_noted_in_its_tx_is_said_to_be_undone() {
    let stage = Stage::new();
    let cell = GuardedCell::new(0);
    let of_a_cell = run!(stage, |tx| -> Result<(), _> {
        *tx.write(&cell) += 1;
        Err("no funds".into())
    });
    let of_a_commit = run!(stage, |tx| {
        commit!(tx, |_| {
            Err::<(), _>(EffectError::not_applied("unique key"))
        });
        Ok(())
    });
    let of_a_cell_over_time = run!(stage, |tx| {
        *tx.write(&cell) += 1;
        stage.lapse();
        Ok(())
    });
    for outcome in [of_a_cell, of_a_commit, of_a_cell_over_time] {
        let text = outcome.unwrap_err().to_string();
        assert!(text.starts_with("rolled back, undone=0/0: "), "{text}");
    }
}

#[tokio::test]
async fn rolled_back_when_the_commit_proves_that_it_was_not_applied() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let outcome = run!(stage, |tx| {
        gauge.raise_in(tx);
        commit!(tx, |_| {
            Err::<(), _>(EffectError::not_applied("unique key"))
        });
        Ok(())
    });
    let Err(RunError::RolledBack { cause, .. }) = &outcome else {
        panic!("{}", name(&outcome));
    };
    assert!(matches!(cause, Cause::NotApplied(error) if error.to_string() == "unique key"));
    assert_eq!(gauge.value(), 0);
    assert!(!stage.hold.lease().is_in_doubt());
}

#[tokio::test]
async fn incomplete_when_an_undo_failed() {
    let stage = Stage::new();
    let outcome = run!(stage, |tx| -> Result<(), _> {
        tx.undo(|| Err::<(), _>("the disk is gone"));
        Err("no funds".into())
    });
    assert_eq!(name(&outcome), "incomplete");
    let error = outcome.unwrap_err();
    assert_eq!(error.was_applied(), None);
    assert!(!error.undo().unwrap().is_complete());
}

#[tokio::test]
async fn incomplete_when_a_compensation_could_not_soundly_run() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    let undone = outside.clone();
    let outcome = run!(stage, |tx| {
        step!(
            tx,
            "debit 7",
            {
                outside.add(-10);
                Ok(())
            },
            undone.add(10)
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
    assert_eq!(stage.hold.debts().len(), 1, "the hold has it too");
}

#[tokio::test]
async fn fenced_when_the_fence_refuses_the_first_send() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let outcome = run!(stage, |tx| {
        gauge.raise_in(tx);
        commit!(tx, |_| {
            let seen = Some(token(6));
            Err::<(), _>(EffectError::Fenced { seen })
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

#[tokio::test]
async fn in_doubt_when_the_commit_does_not_know() {
    let (stage, gauge, sent) = (Stage::new(), Gauge::default(), Sent::default());
    let sending = sent.clone();
    let outcome = run!(stage, |tx| {
        gauge.raise_in(tx);
        commit!(tx, |permit| {
            *sending.lock() = Some(permit.txn_id);
            // A bare `?` is enough to mean "unknown".
            Err(std::io::Error::other("connection reset"))?;
            Ok(())
        });
        Ok(())
    });
    let Err(RunError::InDoubt { txn_id, token, .. }) = &outcome else {
        panic!("{}", name(&outcome));
    };
    assert_eq!(Some(*txn_id), *sent.lock());
    assert_eq!(*token, crate::executor_support::token(5));
    assert_eq!(gauge.value(), 0, "what is local is taken back");
    assert!(stage.hold.lease().is_in_doubt());
    assert_eq!(outcome.unwrap_err().was_applied(), None);
}

#[tokio::test]
async fn committed_late_when_the_lease_was_over_after_the_commit() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let clock = stage.clock.clone();
    let left = stage.hold.lease().remaining();
    let outcome = run!(stage, |tx| {
        gauge.raise_in(tx);
        commit!(tx, |permit| {
            assert_eq!(permit.remaining, left);
            clock.advance(left + Duration::from_millis(3));
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

#[tokio::test]
async fn committed_within_the_lease() {
    let stage = Stage::new();
    let left = stage.hold.lease().remaining();
    let noop = run!(stage, |_| { Ok(7) });
    assert_eq!(name(&noop), "committed within the lease");
    let committed = noop.unwrap();
    assert_eq!(
        (committed.value, committed.token, committed.slack),
        (7, token(5), left)
    );

    let called = run!(stage, |tx| {
        commit!(tx, |_| { Ok(()) });
        Ok(())
    });
    assert_eq!(name(&called), "committed within the lease");
}

#[tokio::test]
async fn committed_when_the_fence_accepted_however_late() {
    let stage = Stage::new();
    let clock = stage.clock.clone();
    let outcome = run!(stage, |tx| {
        commit!(tx, |_| {
            clock.advance(crate::executor_support::PAST);
            Ok(Applied::fenced())
        });
        Ok(())
    });
    assert_eq!(name(&outcome), "committed, fenced");
}

#[tokio::test]
async fn committed_in_cells_of_this_process() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(1));
    let outcome = run!(stage, |tx| {
        *tx.write(&cell) = 2;
        Ok(())
    });
    assert_eq!(name(&outcome), "committed, local");
    assert_eq!(*cell.read(), 2);
}

#[tokio::test]
async fn a_panic_takes_back_and_continues() {
    let (stage, gauge, outside) = (Stage::new(), Gauge::default(), Gauge::default());
    let compensated = outside.clone();
    let panicked = run_to_its_panic!(stage, |tx| -> Result<(), _> {
        gauge.raise_in(tx);
        step!(
            tx,
            "debit 7",
            {
                outside.add(-10);
                Ok(())
            },
            compensated.add(10)
        )?;
        // The work may catch the doubt; the debt stays.
        let _ = step!(
            tx,
            "ask",
            { Err::<(), _>(EffectError::unknown("no answer")) },
            ()
        );
        panic!("in the work")
    });
    let payload = panicked.unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "in the work");
    assert_eq!((gauge.value(), outside.value()), (0, 0));
    let debts = stage.hold.debts();
    assert_eq!(debts.len(), 1, "what no outcome can hold goes to the hold");
    assert!(matches!(debts[0].state, DebtState::InDoubt));
    assert!(stage.is_drained());
}

#[tokio::test]
async fn a_panic_leaves_a_compensation_that_failed_as_a_debt() {
    let stage = Stage::new();
    let panicked = run_to_its_panic!(stage, |tx| -> Result<(), _> {
        step!(tx, "ask", { Ok(()) }, Err::<(), _>("unreachable"))?;
        panic!("in the work")
    });
    assert!(panicked.is_err());
    let debts = stage.hold.debts();
    assert_eq!(debts.len(), 1, "what no outcome can hold goes to the hold");
    assert!(matches!(debts[0].state, DebtState::Failed(_)));
    assert!(stage.is_drained());
}

#[tokio::test]
async fn a_panic_in_the_commit_is_in_doubt() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let panicked = run_to_its_panic!(stage, |tx| {
        gauge.raise_in(tx);
        commit!(tx, |_| -> Result<(), _> { panic!("in the commit") });
        Ok(())
    });
    assert!(panicked.is_err());
    assert_eq!(gauge.value(), 0);
    assert!(stage.hold.lease().is_in_doubt());
    assert!(matches!(stage.hold.debts()[0].state, DebtState::InDoubt));
    assert!(stage.is_drained());
}

/// What the commit was sent under.
type Sent = std::sync::Arc<parking_lot::Mutex<Option<leasehold::run::TxnId>>>;
