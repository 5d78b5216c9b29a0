//! [`Plain`]: the memory store with everything that it need not have left out.

use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, MemoryStore, Released, Renewed, Store,
};
use leasehold::{Error, Key};

/// A store that has exclusive locks and nothing else: its tokens promise nothing.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) MemoryStore);

impl Store for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn capability(&self) -> Capability {
        let mut capability = Capability::least();
        capability.ttl_per_lock = true;
        capability
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.0.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        self.0.renew(grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        self.0.release(grant).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.0.withdraw(claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        self.0.subscribe(claim).await
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
