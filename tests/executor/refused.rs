//! A run that will not commit learns it before its end; cells that it writes are many.

use leasehold::run::{EffectError, StepError};
use leasehold::{Cause, ErrorKind, GuardedCell, LeaseError, RunError};

use crate::executor_support::{Stage, token};

/// The rest of long work would be for nothing.
#[tokio::test]
async fn a_run_that_may_not_write_a_cell_learns_it_at_its_next_check() {
    let own = GuardedCell::for_key("accounts/8".parse().unwrap(), 0);
    let judge = |outcome: Result<leasehold::Committed<()>, RunError<()>>| match outcome {
        Err(RunError::RolledBack {
            cause: Cause::Refused(error),
            ..
        }) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("cell_key=accounts/8"), "{error}");
        }
        other => panic!("{other:?}"),
    };
    let stage = Stage::new();
    judge(stage.executor.guarded(|tx| {
        tx.check()?;
        *tx.write(&own) += 1;
        assert_eq!(tx.check(), Err(LeaseError::Refused));
        tx.check()?;
        unreachable!("the check let it go on");
    }));
    let run = stage.executor.guarded_async(async |tx| {
        *tx.write(&own) += 1;
        tx.check()?;
        unreachable!("the check let it go on");
    });
    judge(run.await);
    assert_eq!(*own.read(), 0);
    // The next run of the same executor is not concerned.
    let next = stage.executor.guarded(|tx| Ok(tx.check()?));
    next.unwrap().into_value();
}

#[test]
fn a_run_that_found_a_newer_holder_learns_it_at_its_next_check() {
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| {
        let fenced = || {
            Err::<(), _>(EffectError::Fenced {
                seen: Some(token(9)),
            })
        };
        let _ = tx.step("debit", fenced, |_| ());
        tx.check()?;
        Ok(())
    });
    assert!(
        matches!(outcome, Err(RunError::Fenced { seen: Some(seen), .. }) if seen == token(9)),
        "{outcome:?}"
    );
}

/// `write` has no result that the work could stop at.
#[tokio::test]
async fn a_run_that_cannot_commit_sends_no_further_step() {
    let foreign = GuardedCell::for_key("accounts/8".parse().unwrap(), 0);
    let stage = Stage::new();
    let outcome = stage.executor.guarded(|tx| {
        *tx.write(&foreign) += 1;
        let call = || unreachable!("the step was sent");
        let step = tx.step("debit", call, |_| ());
        assert!(matches!(
            step,
            Err::<(), _>(StepError::Lease(LeaseError::Refused))
        ));
        Ok(())
    });
    let _ = outcome.unwrap_err();
    let run = stage.executor.guarded_async(async |tx| {
        *tx.write(&foreign) += 1;
        let call = async { unreachable!("the step was sent") };
        let step = tx.step("debit", call, async |_| ()).await;
        assert!(matches!(
            step,
            Err::<(), _>(StepError::Lease(LeaseError::Refused))
        ));
        Ok(())
    });
    let _ = run.await.unwrap_err();
    let outcome = stage.executor.guarded(|tx| {
        let fenced = || Err::<(), _>(EffectError::Fenced { seen: None });
        let _ = tx.step("debit", fenced, |_| ());
        let call = || unreachable!("the step was sent beside a newer holder");
        let step = tx.step("credit", call, |_| ());
        assert!(matches!(
            step,
            Err::<(), _>(StepError::Lease(LeaseError::Refused))
        ));
        Ok(())
    });
    assert!(
        matches!(outcome, Err(RunError::Fenced { .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_run_may_write_many_cells_each_more_than_once() {
    let stage = Stage::new();
    let cells: Vec<_> = (0..2_000).map(|_| GuardedCell::new(0)).collect();
    let outcome = stage.executor.guarded(|tx| {
        for cell in cells.iter().chain(cells.iter().rev()) {
            *tx.write(cell) += 1;
        }
        Ok(())
    });
    outcome.unwrap().into_value();
    assert!(cells.iter().all(|cell| *cell.read() == 2));
}
