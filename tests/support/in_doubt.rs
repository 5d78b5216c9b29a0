//! A commit in doubt.

use leasehold::run::EffectError;
use leasehold::store::Released;
use leasehold::{Executor, LockGuard, RunError};

/// Runs a commit that nobody answers.
pub(crate) fn leave_in_doubt(executor: &Executor) {
    let outcome = executor.guarded(|tx| {
        tx.commit_with(|_| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    assert!(matches!(outcome, Err(RunError::InDoubt { .. })));
}

/// Ends a hold whose commit is in doubt: it is left to its TTL.
#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) async fn end_in_doubt(guard: LockGuard) -> Released {
    leave_in_doubt(&guard.executor());
    let released = guard.release().await.unwrap();
    assert!(matches!(released, Released::Withheld { .. }));
    released
}
