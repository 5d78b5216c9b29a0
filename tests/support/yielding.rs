//! A store that is pending before and after each answer, so that a caller can be dropped at each
//! await.

use leasehold::clock::ManualClock;
use leasehold::store::{Acquired, Claim, Grant, Hint, MemoryStore, Released, Store};
use leasehold::{Error, LockManager};

use crate::support::over::{Changes, Over};

#[derive(Clone, Debug)]
struct Yielding(MemoryStore);

pub(crate) fn yielding() -> (ManualClock, LockManager) {
    let clock = ManualClock::new();
    let store = Over(Yielding(MemoryStore::with_clock(clock.clone())));
    let locks = LockManager::builder(store).clock(clock.clone());
    (clock, locks.build().unwrap())
}

/// Calls something again and again, and drops it after one more poll each time, until it completes:
/// whenever it is dropped, nothing is left of it. `call` gets the number of polls, and answers
/// whether it completed; it needs `least` polls for that.
pub(crate) async fn leaves_nothing_whenever_dropped(
    least: usize,
    call: impl AsyncFn(&LockManager, usize) -> bool,
) {
    let (_clock, locks) = yielding();
    for times in 0.. {
        let completed = call(&locks, times).await;
        locks.settled().await;
        let left = locks.list("").await.unwrap();
        assert!(left.is_empty(), "dropped after {times} polls: {left:?}");
        assert!(locks.held().is_empty());
        if completed {
            assert!(times >= least, "the store was never pending");
            return;
        }
    }
}

async fn between<T>(answer: impl Future<Output = T>) -> T {
    tokio::task::yield_now().await;
    let answer = answer.await;
    tokio::task::yield_now().await;
    answer
}

impl Changes for Yielding {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.0
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        between(self.0.acquire(claim)).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        between(self.0.release(grant)).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        between(self.0.subscribe(claim)).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        between(self.0.downgrade(grant)).await
    }
}
