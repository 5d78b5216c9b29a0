//! A store that is pending before and after each answer, so that a caller can be dropped at each await.

use leasehold::clock::ManualClock;
use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, MemoryStore, Released, Renewed, Revoke,
    Revoked, Store,
};
use leasehold::{Error, Key, LockManager};

#[derive(Clone, Debug)]
struct Yielding(MemoryStore);

pub(crate) fn yielding() -> (ManualClock, LockManager) {
    let clock = ManualClock::new();
    let store = Yielding(MemoryStore::with_clock(clock.clone()));
    let locks = LockManager::builder(store).clock(clock.clone());
    (clock, locks.build().unwrap())
}

async fn between<T>(answer: impl Future<Output = T>) -> T {
    tokio::task::yield_now().await;
    let answer = answer.await;
    tokio::task::yield_now().await;
    answer
}

impl Store for Yielding {
    fn name(&self) -> &'static str {
        "yielding"
    }

    fn capability(&self) -> Capability {
        self.0.capability()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        between(self.0.acquire(claim)).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        self.0.renew(grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        between(self.0.release(grant)).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.0.withdraw(claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        between(self.0.subscribe(claim)).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        between(self.0.downgrade(grant)).await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        self.0.revoke(key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        self.0.inspect(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.0.list(prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.0.close().await
    }
}
