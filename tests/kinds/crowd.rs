//! A crowd on one key: everybody is served, and a request more for each of them is all that it
//! costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use leasehold::clock::ManualClock;
use leasehold::store::{Acquired, Claim, MemoryStore, Store};
use leasehold::{Error, LockManager, Settings};
use tokio::task::JoinSet;

use crate::support::ms;
use crate::support::over::{Changes, Over};

/// A memory store that counts how often it is asked.
#[derive(Clone, Debug)]
struct Counting {
    store: MemoryStore,
    asked: Arc<AtomicUsize>,
}

impl Changes for Counting {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.store
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.asked.fetch_add(1, Relaxed);
        self.store.acquire(claim).await
    }
}

struct Crowded {
    clock: ManualClock,
    asked: Arc<AtomicUsize>,
    locks: LockManager,
}

impl Crowded {
    fn new() -> Self {
        let (clock, asked) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
        let store = Over(Counting {
            store: MemoryStore::with_clock(clock.clone()),
            asked: Arc::clone(&asked),
        });
        let mut settings = Settings::default();
        settings.max_poll_interval = ms(200);
        let builder = LockManager::builder(store).clock(clock.clone());
        let locks = builder.settings(settings).build().unwrap();
        Self {
            clock,
            asked,
            locks,
        }
    }

    fn take_asked(&self) -> usize {
        self.asked.swap(0, Relaxed)
    }

    /// Until so many claims have a place.
    async fn until_waiting(&self, waiting: usize) {
        loop {
            let info = self.locks.inspect("a").await.unwrap();
            if info.is_some_and(|info| info.queue == Some(waiting)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fair,
    Write,
    Read,
}

/// Holds the lock, and leaves it once all may leave.
async fn hold(locks: LockManager, kind: Kind) {
    match kind {
        Kind::Fair => drop(
            locks
                .lock("a")
                .fair()
                .acquire()
                .await
                .unwrap()
                .release()
                .await,
        ),
        Kind::Write => drop(locks.read_write("a").write().await.unwrap().release().await),
        Kind::Read => drop(locks.read_write("a").read().await.unwrap().release().await),
    }
}

#[tokio::test]
async fn all_of_a_crowd_are_served_and_each_asks_three_times() {
    const CROWD: usize = 10_000;
    for kind in [Kind::Fair, Kind::Write, Kind::Read] {
        let crowded = Crowded::new();
        let held = crowded.locks.read_write("a").write().await.unwrap();
        let mut crowd = JoinSet::new();
        for _ in 0..CROWD {
            crowd.spawn(hold(crowded.locks.clone(), kind));
        }
        crowded.until_waiting(CROWD).await;
        held.release().await.unwrap();
        // No time passes: whoever is called is woken, and nobody else.
        while let Some(served) = crowd.join_next().await {
            served.unwrap();
        }
        let asked = crowded.take_asked();
        // It takes its place, looks again once it has subscribed, and comes when it is called.
        assert!(asked <= 3 * CROWD + 1, "{kind:?}: {asked}");
    }
}

#[tokio::test]
async fn a_crowd_that_is_woken_asks_only_to_keep_its_places() {
    const CROWD: usize = 200;
    let crowded = Crowded::new();
    let held = crowded.locks.read_write("a").write().await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        crowd.spawn(hold(crowded.locks.clone(), Kind::Fair));
    }
    crowded.until_waiting(CROWD).await;
    crowded.take_asked();
    for _ in 0..200 {
        crowded.clock.advance(ms(50));
        crowded.locks.settled().await;
    }
    assert!(held.lease().is_live());
    let info = crowded.locks.inspect("a").await.unwrap().unwrap();
    assert_eq!(info.queue, Some(CROWD), "no place is lost");
    // The few that are first poll every 200 ms. For the others it is about once in a second: the
    // place of each is kept for two.
    let asked = crowded.take_asked();
    assert!(asked <= 20 * CROWD, "{asked} in ten seconds");
}
