//! Runs that are repeated while that is safe.

use std::time::Duration;

use leasehold::executor::{Applied, EffectError};
use leasehold::retry::RetryPolicy;
use leasehold::{Abort, Cause, Error, ErrorKind, RunError, Tx};

use crate::support::{World, ms, poll_once, secs, while_time_passes};

/// The work says that another try may help.
fn not_yet() -> Abort {
    Error::unavailable("the ledger is not open yet").into()
}

#[derive(Debug, thiserror::Error)]
#[error("the ledger cannot be read")]
struct Ledger(#[source] Error);

/// A run whose work fails with this error, if it is repeated for as long as that may help; and how often it ran.
async fn retried(fail: impl Fn() -> Abort) -> (RunError<()>, u32) {
    let world = World::new();
    let lock = world.ours.lock("a");
    let mut attempts = 0;
    let policy = RetryPolicy::within(secs(5));
    let run = lock.guarded_retry(&policy, |_tx| {
        attempts += 1;
        Err(fail())
    });
    let ended = while_time_passes(&world, secs(10), run).await;
    (ended.unwrap_err(), attempts)
}

#[tokio::test]
async fn a_refusal_of_the_work_is_final_and_keeps_its_reason() {
    let (error, attempts) = retried(|| "not enough money".into()).await;
    assert_eq!(attempts, 1);
    assert!(!error.is_retryable());
    let Some(Cause::Failed(why)) = error.cause() else {
        panic!("{error:?}");
    };
    assert_eq!(why.to_string(), "not enough money");
    for fault in [Error::invalid("no such account"), Error::closed("closed")] {
        let (_, attempts) = retried(|| Ledger(fault.clone()).into()).await;
        assert_eq!(attempts, 1, "{fault}");
    }
}

#[tokio::test]
async fn a_refusal_in_a_commit_is_final_too() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let mut attempts = 0;
    let policy = RetryPolicy::within(secs(5));
    let run = lock.guarded_retry(&policy, |tx| {
        attempts += 1;
        let _ = tx.commit_with(|_| Ok(Err::<Applied, _>("not enough money")));
        Ok(())
    });
    let ended = while_time_passes(&world, secs(10), run).await;
    assert!(
        matches!(
            ended,
            Err(RunError::RolledBack {
                cause: Cause::Failed(_),
                ..
            })
        ),
        "{ended:?}"
    );
    assert_eq!(attempts, 1);
}

#[tokio::test]
async fn work_whose_error_says_that_another_try_may_help_is_repeated() {
    for fail in [not_yet, || Ledger(Error::contended("busy")).into()] {
        let (error, attempts) = retried(fail).await;
        assert!(attempts > 3, "{attempts}");
        assert!(error.is_retryable());
    }
}

/// The pause is over when time is, and the task comes late to it.
#[tokio::test]
async fn no_attempt_begins_after_the_time_of_the_policy() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let mut attempts = 0;
    let policy = RetryPolicy::within(secs(5));
    let mut run = Box::pin(lock.guarded_retry(&policy, |_tx| {
        attempts += 1;
        Err::<(), _>(not_yet())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    world.clock.advance(secs(6));
    let ended = while_time_passes(&world, secs(1), run).await;
    assert!(
        matches!(ended, Err(RunError::RolledBack { .. })),
        "{ended:?}"
    );
    assert_eq!(attempts, 1);
}

#[tokio::test]
async fn a_run_that_was_rolled_back_is_repeated_until_it_commits() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let mut attempts = 0;
    let policy = RetryPolicy::default();
    let run = lock.guarded_retry(&policy, |_tx| {
        attempts += 1;
        if attempts < 4 {
            return Err(not_yet());
        }
        Ok(attempts)
    });
    let done = while_time_passes(&world, secs(10), run).await;
    assert_eq!(done.unwrap().value, 4);
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn a_run_that_never_commits_ends_with_its_time() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let mut attempts = 0;
    let policy = RetryPolicy::within(secs(5));
    let began = world.now();
    let run = lock.guarded_retry_async(&policy, async |_tx| {
        attempts += 1;
        Err::<(), _>(not_yet())
    });
    let ended = while_time_passes(&world, secs(10), run).await;
    assert!(
        matches!(ended, Err(RunError::RolledBack { .. })),
        "{ended:?}"
    );
    assert!(attempts > 3, "{attempts}");
    assert!(world.now().since(&began) <= secs(5) + ms(200));
}

#[tokio::test]
async fn what_may_be_applied_is_never_repeated() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let mut sends = 0;
    let policy = RetryPolicy::default();
    let run = lock.guarded_retry(&policy, |tx| {
        sends += 1;
        let _ = tx.commit_with(|_permit| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    let ended = while_time_passes(&world, secs(40), run).await;
    assert!(matches!(ended, Err(RunError::InDoubt { .. })), "{ended:?}");
    assert_eq!(sends, 1);
}

#[tokio::test]
async fn a_lock_that_stays_busy_ends_the_retries_with_their_time() {
    let world = World::new();
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let policy = RetryPolicy::within(secs(3));
    let run = lock.guarded_retry(&policy, |_tx| Ok(()));
    let ended = while_time_passes(&world, secs(6), run).await;
    assert!(
        matches!(&ended, Err(RunError::NotAcquired { why }) if why.kind() == ErrorKind::Contended),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_pause_without_a_limit_ends_the_retries() {
    let world = World::new();
    let mut policy = RetryPolicy::default();
    (policy.delay, policy.max_delay) = (Duration::MAX, Duration::MAX);
    let lock = world.ours.lock("a");
    let run = lock.guarded_retry(&policy, |_tx| Err::<(), _>(not_yet()));
    let ended = while_time_passes(&world, secs(40), run).await;
    assert!(
        matches!(ended, Err(RunError::RolledBack { .. })),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_shutdown_ends_the_pause_before_the_next_attempt() {
    let world = World::new();
    let lock = world.ours.lock("a");
    let policy = RetryPolicy::default();
    let work = |_: &Tx<'_>| Err::<(), _>(not_yet());
    let mut run = Box::pin(lock.guarded_retry(&policy, work));
    assert!(poll_once(&mut run).await.is_pending());
    world.ours.shutdown().await;
    let RunError::NotAcquired { why } = run.await.unwrap_err() else {
        panic!("the last attempt was not refused");
    };
    assert_eq!(why.kind(), ErrorKind::Closed);
}
