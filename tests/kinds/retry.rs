//! Which runs may be repeated.

use leasehold::fence::AlreadyApplied;
use leasehold::run::{Applied, EffectError};
use leasehold::{Abort, Cause, Error, RunError};

use crate::support::{World, secs, while_time_passes};

/// The work says that another try may help.
fn not_yet() -> Abort {
    Error::unavailable("the ledger is not open yet").into()
}

#[derive(Debug, thiserror::Error)]
#[error("the ledger cannot be read")]
struct Ledger(#[source] Error);

/// A run whose work fails with this error.
async fn failed(fail: impl FnOnce() -> Abort) -> RunError<()> {
    let world = World::new();
    let ended = world.ours.lock("a").guarded(|_tx| Err(fail())).await;
    assert!(world.is_free("a").await);
    ended.unwrap_err()
}

#[tokio::test]
async fn a_refusal_of_the_work_is_final_and_keeps_its_reason() {
    let error = failed(|| "not enough money".into()).await;
    assert!(!error.is_retryable());
    let Some(Cause::Failed(why)) = error.cause() else {
        panic!("{error:?}");
    };
    assert_eq!(why.to_string(), "not enough money");
    for fault in [Error::invalid("no such account"), Error::closed("closed")] {
        let error = failed(|| Ledger(fault).into()).await;
        assert!(!error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_in_a_commit_is_final_too() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let run = lock.guarded(|tx| {
        let _ = tx.commit_with(|_| Ok(Err::<Applied, _>("not enough money")));
        Ok(())
    });
    let error = run.await.unwrap_err();
    assert!(matches!(error.cause(), Some(Cause::Failed(_))), "{error:?}");
    assert!(!error.is_retryable());
}

/// A constraint that the data breaks is broken again.
#[tokio::test]
async fn a_commit_that_no_repetition_helps_is_final() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let repeated = [
        (EffectError::not_applied("no answer yet"), true),
        (EffectError::not_applied(AlreadyApplied), false),
        (EffectError::not_applied(Error::unavailable("down")), true),
        (
            EffectError::not_applied(Error::invalid("no such account")),
            false,
        ),
        (
            EffectError::not_applied(Ledger(Error::invalid("no such account"))),
            false,
        ),
    ];
    for (error, may_help) in repeated {
        let run = lock.guarded(|tx| {
            let _ = tx.commit_with(|_| Err::<Applied, _>(error));
            Ok(())
        });
        let error = run.await.unwrap_err();
        assert!(
            matches!(error.cause(), Some(Cause::NotApplied(_))),
            "{error:?}"
        );
        assert_eq!(error.is_retryable(), may_help, "{error:?}");
    }
}

#[tokio::test]
async fn work_whose_error_says_that_another_try_may_help_may_be_repeated() {
    for fail in [not_yet, || Ledger(Error::contended("busy")).into()] {
        let error = failed(fail).await;
        assert!(error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn a_run_whose_lock_was_busy_may_be_repeated() {
    let world = World::new();
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let run = lock.guarded(|_tx| Ok(()));
    let wait = world.ours.settings().wait;
    let ended = while_time_passes(&world, wait + secs(1), run).await;
    let error = ended.unwrap_err();
    assert!(matches!(error, RunError::NotAcquired { .. }), "{error:?}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn what_may_be_applied_is_never_repeated() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let run = lock.guarded(|tx| {
        let _ = tx.commit_with(|_permit| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::InDoubt { .. }), "{error:?}");
    assert!(!error.is_retryable());
}
