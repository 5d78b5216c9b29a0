//! A hint that is a grant: held without a request, for as long as it proves.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::support::over::{Changes, Over};
use crate::support::{ms, poll_once, secs};
use leasehold::clock::{Clock, ManualClock};
use leasehold::store::{
    Acquired, Claim, Grant, GrantProof, Hint, Label, MemoryStore, OwnerToken, Renewed, Store,
};
use leasehold::{Error, LockManager, Settings};
use parking_lot::Mutex;

/// What is seen of the requests.
#[derive(Debug, Default)]
struct Seen {
    acquires: usize,
    renewals: usize,
    /// Which proof a hint carries.
    proof: Option<GrantProof>,
}

/// The memory store, which says with a hint what it has granted.
#[derive(Clone, Debug)]
struct Telling {
    memory: MemoryStore,
    seen: Arc<Mutex<Seen>>,
}

impl Changes for Telling {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.memory
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.seen.lock().acquires += 1;
        self.memory.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        self.seen.lock().renewals += 1;
        self.memory.renew(grants).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let hint = self.memory.subscribe(claim).await?;
        let (this, claim) = (self.clone(), claim.clone());
        Ok(Hint::granting(async move {
            hint.await;
            let proof = this.seen.lock().proof?;
            match this.memory.acquire(&claim).await {
                Ok(Acquired::Granted(grant)) => Some(Grant::new(claim, grant.token, proof)),
                _ => None,
            }
        }))
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A store, a manager, and the hold of somebody else.
async fn busy() -> (ManualClock, Telling, LockManager, Grant) {
    let clock = ManualClock::new();
    let store = Telling {
        memory: MemoryStore::with_clock(clock.clone()),
        seen: Arc::default(),
    };
    let locks = LockManager::builder(Over(store.clone()))
        .clock(clock.clone())
        .build()
        .unwrap();
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("other").unwrap();
    let claim = Claim::new("a".parse().unwrap(), owner, label, secs(30));
    let Ok(Acquired::Granted(held)) = store.memory.acquire(&claim).await else {
        panic!("nobody else wants it");
    };
    (clock, store, locks, held)
}

/// Polls a caller until it waits for its hint.
async fn until_it_waits<F: Future>(mut acquire: std::pin::Pin<&mut F>, store: &Telling) {
    while store.seen.lock().acquires < 2 {
        assert!(poll_once(acquire.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        assert!(poll_once(acquire.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
    }
}

async fn until_ready<F: Future>(mut acquire: std::pin::Pin<&mut F>) -> F::Output {
    for _ in 0..1_000 {
        if let Poll::Ready(output) = poll_once(acquire.as_mut()).await {
            return output;
        }
        tokio::task::yield_now().await;
    }
    panic!("it waits, although its hint was a grant");
}

fn usable(ttl: Duration) -> Duration {
    Settings::default().usable_ttl(ttl)
}

#[tokio::test]
async fn a_hint_that_is_a_grant_is_held_without_a_request_for_as_long_as_it_proves() {
    let (clock, store, locks, other) = busy().await;
    let lock = locks.lock("a");
    let mut acquire = pin!(lock.acquire());
    let asked_at = Clock::from(clock.clone()).stamp();
    until_it_waits(acquire.as_mut(), &store).await;
    store.seen.lock().proof = Some(GrantProof::since(ms(1_300), asked_at));
    clock.advance(ms(300));
    let _ = store.memory.release(&other).await;
    let guard = until_ready(acquire.as_mut()).await.unwrap();
    assert_eq!(store.seen.lock().acquires, 2, "it asked for what it had");
    assert!(guard.token() > other.token);
    assert_eq!(guard.remaining(), usable(ms(1_300)) - ms(300));
    // It is renewed long before it ends.
    for _ in 0..50 {
        clock.advance(ms(100));
        locks.settled().await;
        assert!(guard.lease().is_live());
    }
    assert!(store.seen.lock().renewals > 0);
}

#[tokio::test]
async fn a_hold_whose_hint_granted_a_second_soon_has_its_whole_ttl() {
    let (clock, store, locks, other) = busy().await;
    let lock = locks.lock("a");
    let mut acquire = pin!(lock.acquire());
    until_it_waits(acquire.as_mut(), &store).await;
    let asked_at = Clock::from(clock.clone()).stamp();
    store.seen.lock().proof = Some(GrantProof::since(ms(1_200), asked_at));
    let _ = store.memory.release(&other).await;
    let guard = until_ready(acquire.as_mut()).await.unwrap();
    locks.settled().await;
    assert_eq!(
        store.seen.lock().renewals,
        0,
        "a short section sends no renewal"
    );
    clock.advance(ms(6));
    locks.settled().await;
    assert_eq!(store.seen.lock().renewals, 1);
    assert!(
        guard.remaining() > usable(secs(9)),
        "{:?}",
        guard.remaining()
    );
    clock.advance(secs(2));
    locks.settled().await;
    assert_eq!(
        store.seen.lock().renewals,
        1,
        "from then on it is renewed like any other"
    );
}

#[tokio::test]
async fn a_hint_whose_grant_came_too_late_is_asked_for_again() {
    let (clock, store, locks, other) = busy().await;
    let lock = locks.lock("a");
    let mut acquire = pin!(lock.acquire());
    let asked_at = Clock::from(clock.clone()).stamp();
    until_it_waits(acquire.as_mut(), &store).await;
    store.seen.lock().proof = Some(GrantProof::since(ms(300), asked_at));
    clock.advance(ms(300));
    let _ = store.memory.release(&other).await;
    let guard = until_ready(acquire.as_mut()).await.unwrap();
    assert_eq!(store.seen.lock().acquires, 3);
    assert_eq!(guard.remaining(), usable(secs(10)));
}

#[tokio::test]
async fn a_caller_that_goes_away_gives_back_what_its_hint_granted() {
    let (_, store, locks, other) = busy().await;
    let lock = locks.lock("a");
    let mut acquire = Box::pin(lock.acquire());
    until_it_waits(acquire.as_mut(), &store).await;
    let _ = store.memory.release(&other).await;
    let record = store.memory.inspect(&"a".parse().unwrap()).await.unwrap();
    assert!(record.is_some(), "it was handed over");
    drop(acquire);
    locks.settled().await;
    let record = store.memory.inspect(&"a".parse().unwrap()).await.unwrap();
    assert!(record.is_none(), "{record:?}");
}
