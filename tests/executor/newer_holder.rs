//! A run that has found a newer holder compensates nothing, whatever else went wrong in it.

use std::pin::pin;

use crate::executor_support::{Stage, Trace, poll_once};
use leasehold::run::{DebtState, EffectError, StepError};
use leasehold::{GuardedCell, RunError};

fn of_another_key() -> GuardedCell<i32> {
    GuardedCell::for_key("accounts/8".parse().unwrap(), 0)
}

/// The work goes wrong twice: it breaks a rule while a step is on its way, and then a fence refuses
/// the step. `is_hidden`: it returns `Ok` all the same.
fn ended(is_hidden: bool) -> Result<(), leasehold::Abort> {
    if is_hidden {
        Ok(())
    } else {
        Err("no funds".into())
    }
}

fn judge(outcome: Result<leasehold::Committed<()>, RunError<()>>, trace: &Trace) {
    assert!(trace.all().is_empty(), "{:?}", trace.all());
    let error = outcome.unwrap_err();
    assert!(matches!(error, RunError::Incomplete { .. }), "{error:?}");
    assert!(
        matches!(error.debts()[0].state, DebtState::Owed),
        "{error:?}"
    );
}

#[test]
fn a_newer_holder_counts_although_the_run_had_broken_a_rule_before() {
    for is_hidden in [false, true] {
        let (stage, trace, other) = (Stage::new(), Trace::default(), of_another_key());
        let outcome = stage.executor.guarded(|tx| {
            tx.step("debit", || Ok(()), |_| trace.add("compensated"))?;
            let refused = || {
                drop(tx.write(&other));
                Err::<(), _>(EffectError::Fenced { seen: None })
            };
            let refused = tx.step("credit", refused, |_| ());
            assert!(matches!(refused, Err(StepError::Fenced { .. })));
            ended(is_hidden)
        });
        judge(outcome, &trace);
    }
}

#[tokio::test]
async fn a_newer_holder_counts_in_an_awaited_run_too() {
    for is_hidden in [false, true] {
        let (stage, trace, other) = (Stage::new(), Trace::default(), of_another_key());
        let ours = trace.clone();
        let run = stage.executor.guarded_async(async |tx| {
            let undo = async move |_| ours.add("compensated");
            tx.step("debit", async { Ok(()) }, undo).await?;
            let refused = async {
                drop(tx.write(&other));
                Err::<(), _>(EffectError::Fenced { seen: None })
            };
            let refused = tx.step("credit", refused, async |_| ()).await;
            assert!(matches!(refused, Err(StepError::Fenced { .. })));
            ended(is_hidden)
        });
        judge(run.await, &trace);
    }
}

#[tokio::test]
async fn a_dropped_run_that_found_a_newer_holder_compensates_nothing() {
    let (stage, trace, other) = (Stage::new(), Trace::default(), of_another_key());
    {
        let ours = trace.clone();
        let mut run = pin!(stage.executor.guarded_async(async |tx| {
            let undo = async move |_| ours.add("compensated");
            tx.step("debit", async { Ok(()) }, undo).await?;
            let refused = async {
                drop(tx.write(&other));
                Err::<(), _>(EffectError::Fenced { seen: None })
            };
            drop(tx.step("credit", refused, async |_| ()).await);
            std::future::pending::<Result<(), leasehold::Abort>>().await
        }));
        assert!(poll_once(run.as_mut()).is_pending());
    }
    stage.hold.run_compensations().await;
    assert!(trace.all().is_empty(), "{:?}", trace.all());
    assert!(matches!(stage.hold.debts()[0].state, DebtState::Owed));
}
