//! A request that the store executes after its caller has gone.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use leasehold::clock::ManualClock;
use leasehold::store::{Acquired, Capability, Claim, Hint, MemoryStore, Store};
use leasehold::{Error, LockManager};

use crate::support::over::{Changes, Over};
use crate::support::{ms, poll_once, secs};

/// Its first request arrives late, and a subscription takes for ever.
#[derive(Clone, Debug)]
struct Late {
    store: MemoryStore,
    first: Arc<Mutex<Option<Claim>>>,
    is_asked_again: Arc<AtomicBool>,
}

impl Changes for Late {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.store
    }

    fn capability(&self) -> Capability {
        let mut capability = self.store.capability();
        capability.subscribes_first = true;
        capability
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let is_first = self.first.lock().unwrap().is_none();
        if is_first {
            *self.first.lock().unwrap() = Some(claim.clone());
            return Err(Error::in_doubt("no answer"));
        }
        self.is_asked_again.store(true, SeqCst);
        self.store.acquire(claim).await
    }

    async fn subscribe(&self, _: &Claim) -> Result<Hint, Error> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_claim_with_an_unanswered_request_is_withdrawn_although_a_later_one_took_no_place() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let build = |builder: leasehold::LockManagerBuilder| builder.clock(clock.clone()).build();
    let theirs = build(LockManager::builder(store.clone())).unwrap();
    let late = Late {
        store: store.clone(),
        first: Arc::default(),
        is_asked_again: Arc::default(),
    };
    let ours = build(LockManager::builder(Over(late.clone()))).unwrap();

    let held = theirs.lock("a").acquire().await.unwrap();
    let lock = ours.lock("a");
    let mut waiting = Box::pin(lock.acquire_within(secs(5)));
    while !late.is_asked_again.load(SeqCst) {
        assert!(poll_once(&mut waiting).await.is_pending());
        clock.advance(ms(10));
    }
    drop(waiting);
    ours.settled().await;
    held.release().await.unwrap();
    let claim = late.first.lock().unwrap().clone().unwrap();
    let _ = store.acquire(&claim).await;
    assert!(theirs.inspect("a").await.unwrap().is_none());
}
