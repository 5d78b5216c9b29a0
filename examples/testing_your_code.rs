//! Tests of code that uses locks: a clock that you move, a lease that is lost, a store that is cut
//! off. No test waits.
//!
//! `cargo run --example testing_your_code`. In your crate these are tests, and leasehold is a
//! dev-dependency with the feature `testing`. `leasehold::testing::explore_lapses` looks for undo
//! hooks that are missing.

use std::error::Error;
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
use leasehold::testing::{Faulty, Operation};
use leasehold::{ErrorKind, Executor, GuardedCell, LockManager, RunError};

/// The code under test: it moves money while the lease is live, or not at all.
fn debit(
    executor: &Executor,
    from: &GuardedCell<i64>,
    slow: impl Fn(),
) -> Result<(), RunError<()>> {
    let ran = executor.guarded(|tx| {
        *tx.write(from) -= 10;
        slow();
        Ok(())
    });
    ran.map(drop)
}

/// Lets time pass, and the manager do what is due.
async fn pass(clock: &ManualClock, locks: &LockManager, seconds: u32) {
    for _ in 0..seconds * 10 {
        clock.advance(Duration::from_millis(100));
        locks.settled().await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(store.clone(), clock.clone(), 7);
    let locks = LockManager::builder(network.clone()).clock(clock.clone());
    let locks = locks.build()?;
    let balance = GuardedCell::new(100);

    // A hold is renewed for as long as it is needed: ten minutes pass at once.
    let guard = locks.lock("accounts/7").acquire().await?;
    pass(&clock, &locks, 600).await;
    debit(&guard.executor(), &balance, || {})?;
    assert_eq!(*balance.read(), 90);

    // The process is stopped in the middle of the work, for longer than its lease: nothing was
    // changed.
    let stopped = || clock.advance(Duration::from_secs(60));
    let ended = debit(&guard.executor(), &balance, stopped);
    assert!(ended.is_err_and(|error| error.was_applied() == Some(false)));
    assert_eq!(*balance.read(), 90);
    drop(guard);

    // The store is cut off: the hold is at risk first, then lost, and the next run is refused.
    let guard = locks.lock("accounts/8").acquire().await?;
    network.block(Operation::Renew);
    pass(&clock, &locks, 6).await;
    assert_eq!(locks.health().at_risk, 1);
    assert!(guard.lease().is_live());
    pass(&clock, &locks, 6).await;
    let refused = debit(&guard.executor(), &balance, || {});
    assert!(matches!(refused, Err(RunError::NotStarted { .. })));

    // The store restarted and grants nothing yet: that is no holder, and the error says for how
    // long.
    store.restart(Duration::from_secs(30));
    let not_yet = locks.lock("accounts/9").try_acquire().await;
    let error = not_yet.expect_err("grants nothing");
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert!(error.retry_after() > Some(Duration::from_secs(29)));
    println!("all as expected; the last one: {error}");
    Ok(())
}
