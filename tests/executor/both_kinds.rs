//! A function that takes a `Tx` may be called in both kinds of run: what it does blocks, also in a
//! run that is awaited.

use crate::executor_support::{Gauge, Stage, pause, poll_then_drop};
use leasehold::run::StepError;
use leasehold::{Committed, RunError, Tx};

fn debit(tx: &Tx<'_>, outside: &Gauge) -> Result<(), StepError> {
    let (sent, credited) = (outside.clone(), outside.clone());
    let send = move || {
        sent.add(-10);
        Ok(())
    };
    tx.step("debit 10", send, move |_| credited.add(10))
}

async fn awaited(
    stage: &Stage,
    outside: &Gauge,
    fails: bool,
) -> Result<Committed<()>, RunError<()>> {
    let resource = outside.clone();
    let run = stage.executor.guarded_async(async |tx| {
        debit(tx, outside)?;
        pause().await;
        if fails {
            return Err("no funds".into());
        }
        let call = move |_| {
            resource.add(1_000);
            Ok(())
        };
        Tx::commit_with(tx, call);
        Ok(())
    });
    run.await
}

#[tokio::test]
async fn a_blocking_step_and_commit_of_an_awaited_run_are_applied() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    awaited(&stage, &outside, false).await.unwrap().into_value();
    assert_eq!(outside.value(), 990);
}

#[tokio::test]
async fn a_blocking_step_is_compensated_by_either_kind_of_run() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    let run = stage.executor.guarded(|tx| {
        debit(tx, &outside)?;
        assert_eq!(outside.value(), -10);
        Err::<(), _>("no funds".into())
    });
    assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    assert_eq!(outside.value(), 0);
    let run = awaited(&stage, &outside, true).await;
    assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    assert_eq!(outside.value(), 0);
}

#[tokio::test]
async fn a_blocking_step_of_an_awaited_run_that_is_dropped_is_compensated_by_the_hold() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    assert!(poll_then_drop(1, awaited(&stage, &outside, true)).is_none());
    assert_eq!(outside.value(), -10);
    stage.hold.run_compensations().await;
    assert_eq!(outside.value(), 0);
    assert!(stage.hold.debts().is_empty());
}
