//! A step is sent under a live lease, or not at all.

use leasehold::clock::ManualClock;
use leasehold::handler::Event;
use leasehold::store::MemoryStore;
use leasehold::{Cause, Ended, LeaseError, LockGuard, LockManager, RunError};

use crate::support::secs;

/// A hold whose observer writes each intent to a slow journal, for longer than the lease lasts.
async fn held_beside_a_slow_journal() -> (LockManager, LockGuard) {
    let clock = ManualClock::new();
    let time = clock.clone();
    let journal = move |event: &Event<'_>| {
        if let Event::Intent { .. } = event {
            time.advance(secs(11));
        }
    };
    let builder = LockManager::builder(MemoryStore::with_clock(clock.clone())).clock(clock);
    let locks = builder.observer(journal).build().unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    (locks, guard)
}

fn judge(outcome: &Result<leasehold::Committed<()>, RunError<()>>, guard: &LockGuard) {
    assert!(
        matches!(
            outcome,
            Err(RunError::RolledBack {
                cause: Cause::Lease(LeaseError::Lost(Ended::Lapsed)),
                ..
            })
        ),
        "{outcome:?}"
    );
    assert!(!guard.lease().is_in_doubt(), "nothing was sent");
}

#[tokio::test]
async fn a_step_whose_report_outlasts_the_lease_is_not_sent() {
    let (_locks, guard) = held_beside_a_slow_journal().await;
    let outcome = guard.executor().guarded(|tx| {
        tx.step("debit", || -> Result<(), _> { panic!("sent") }, |_| ())?;
        Ok(())
    });
    judge(&outcome, &guard);
}

#[tokio::test]
async fn an_awaited_step_whose_report_outlasts_the_lease_is_not_sent() {
    let (_locks, guard) = held_beside_a_slow_journal().await;
    let executor = guard.executor();
    let outcome = executor.guarded_async(async |tx| {
        let sent = async { panic!("sent") };
        tx.step::<(), _, _>("debit", sent, async |_| ()).await?;
        Ok(())
    });
    judge(&outcome.await, &guard);
}
