//! What is printed of a run that did not commit: a chain of errors that names each of them once.

use std::error::Error;
use std::fmt::Debug;

use leasehold::{Abort, Cause, RunError, Tx};

use crate::executor_support::{PAST, Stage};

/// As `anyhow` prints an error with `{:#}`, and other reporters do.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}

fn failed<T: Debug>(stage: &Stage, work: impl FnOnce(&Tx<'_>) -> Result<T, Abort>) -> RunError<T> {
    stage.executor.guarded(work).unwrap_err()
}

#[derive(Debug, thiserror::Error)]
#[error("the account is closed")]
struct Closed(#[source] std::io::Error);

#[test]
fn the_error_of_the_work_is_the_source_and_is_printed_once() {
    let stage = Stage::new();
    let inner = std::io::Error::other("no such row");
    let error = failed(&stage, |_| Err::<(), _>(Closed(inner).into()));
    let source = error.source().unwrap();
    assert!(source.is::<Closed>(), "{source:?}");
    assert_eq!(
        chain(&error),
        "rolled back, nothing was noted; what the work did outside of its tx was not undone: the work failed: the account is closed: no such row"
    );
}

#[test]
fn a_lease_that_is_over_is_printed_once() {
    let stage = Stage::new();
    let error = failed(&stage, |tx| {
        stage.clock.advance(PAST);
        Ok(tx.check()?)
    });
    let text = chain(&error);
    assert_eq!(text.matches("the lease is lost").count(), 1, "{text}");
    let error = failed(&stage, |_| Ok(()));
    let text = chain(&error);
    assert!(text.starts_with("not started: the lease is lost"), "{text}");
    assert_eq!(text.matches("the lease is lost").count(), 1, "{text}");
}

#[tokio::test]
async fn a_commit_that_was_not_applied_or_is_in_doubt_is_printed_once() {
    use leasehold::run::EffectError;
    let stage = Stage::new();
    let refused = stage.executor.commit(|_| async {
        Err::<(), _>(EffectError::not_applied(std::io::Error::other("disk full")))
    });
    let text = chain(&refused.await.unwrap_err());
    assert_eq!(
        text,
        "rolled back, undone=0/0: the commit was not applied: disk full"
    );
    let unknown = stage.executor.commit(|_| async {
        Err::<(), _>(EffectError::unknown(std::io::Error::other(
            "connection reset",
        )))
    });
    let text = chain(&unknown.await.unwrap_err());
    assert!(
        text.starts_with("the commit is in doubt: txn_id="),
        "{text}"
    );
    assert!(
        text.ends_with("look for it at the resource: connection reset"),
        "{text}"
    );
}

#[test]
fn a_run_that_was_asked_to_stop_does_not_read_like_a_failure_and_is_not_repeated() {
    let stage = Stage::new();
    let error = failed(&stage, |tx| {
        tx.undo(|| ());
        Err::<(), _>(Abort::stop())
    });
    assert_eq!(chain(&error), "stopped, undone=1/1: the work asked to stop");
    assert!(matches!(error.cause(), Some(Cause::Stopped)));
    assert_eq!(error.was_applied(), Some(false));
    assert!(!error.is_retryable());
}
