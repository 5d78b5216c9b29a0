//! The rows that only an awaited run can have: a commit without an answer, a dropped future.

use std::time::Duration;

use leasehold::run::{CommitPermit, EffectError};
use leasehold::{Committed, RunError};

use super::name;
use crate::executor_support::{Gauge, PAST, Stage, pause, poll_then_drop};

/// A run with this commit call and no other work.
async fn committing<F: Future<Output = Result<(), EffectError>> + Send + 'static>(
    stage: &Stage,
    call: impl FnOnce(CommitPermit) -> F + Send + 'static,
) -> Result<Committed<()>, RunError<()>> {
    let run = stage.executor.guarded_async(async |tx| {
        tx.commit_with(call);
        Ok(())
    });
    run.await
}

#[tokio::test]
async fn in_doubt_when_the_commit_is_not_answered_within_the_lease() {
    let stage = Stage::new();
    let clock = stage.clock.clone();
    let outcome = committing(&stage, async move |permit| {
        pause().await;
        clock.advance(permit.remaining);
        std::future::pending().await
    })
    .await;
    assert_eq!(name(&outcome), "in doubt");
    assert!(stage.hold.lease().is_in_doubt());
}

#[tokio::test]
async fn fenced_when_the_call_was_sent_late_and_the_fence_answers_after_a_while() {
    let stage = Stage::new();
    let clock = stage.clock.clone();
    // The process was stopped between the check and the call.
    let outcome = committing(&stage, async move |_| {
        clock.advance(PAST);
        pause().await;
        Err(EffectError::Fenced { seen: None })
    })
    .await;
    assert_eq!(name(&outcome), "fenced");
}

#[tokio::test]
async fn in_doubt_when_the_call_was_sent_late_and_nobody_answers() {
    let stage = Stage::new();
    let clock = stage.clock.clone();
    let outcome = committing(&stage, async move |_| {
        clock.advance(PAST);
        pause().await;
        clock.advance(Duration::from_secs(1));
        std::future::pending().await
    })
    .await;
    assert_eq!(name(&outcome), "in doubt");
}

#[tokio::test]
async fn a_dropped_future_takes_back_at_once_and_passes_on_what_must_await() {
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
