//! [`Over`]: a test's store that is another store, except for what the test changes.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, Released, Renewed, Revoke, Revoked, Store,
};
use leasehold::{Error, Key};

/// What a test changes of a store. Every method that it does not write asks the store beneath.
pub(crate) trait Changes: Debug + Send + Sync + 'static {
    type Store: Store;

    fn beneath(&self) -> &Self::Store;

    fn capability(&self) -> Capability {
        self.beneath().capability()
    }

    fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<Acquired, Error>> + Send {
        self.beneath().acquire(claim)
    }

    fn renew(&self, grants: &[Grant]) -> impl Future<Output = Vec<Renewed>> + Send {
        self.beneath().renew(grants)
    }

    fn release(&self, grant: &Grant) -> impl Future<Output = Released> + Send {
        self.beneath().release(grant)
    }

    fn rest(&self, grant: &Grant, rest: Duration) -> impl Future<Output = Released> + Send {
        self.beneath().rest(grant, rest)
    }

    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<(), Error>> + Send {
        self.beneath().withdraw(claim)
    }

    fn subscribe(&self, claim: &Claim) -> impl Future<Output = Result<Hint, Error>> + Send {
        self.beneath().subscribe(claim)
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        self.beneath().listen(claim)
    }

    fn downgrade(&self, grant: &Grant) -> impl Future<Output = Result<Grant, Error>> + Send {
        self.beneath().downgrade(grant)
    }

    fn revoke(
        &self,
        key: &Key,
        how: Revoke,
    ) -> impl Future<Output = Result<Revoked, Error>> + Send {
        self.beneath().revoke(key, how)
    }

    fn inspect(&self, key: &Key) -> impl Future<Output = Result<Option<LockInfo>, Error>> + Send {
        self.beneath().inspect(key)
    }

    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<LockInfo>, Error>> + Send {
        self.beneath().list(prefix)
    }

    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send {
        self.beneath().close()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Over<C>(pub(crate) C);

#[deny(clippy::missing_trait_methods)]
impl<C: Changes> Store for Over<C> {
    fn name(&self) -> &'static str {
        "over"
    }

    fn capability(&self) -> Capability {
        self.0.capability()
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

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        self.0.rest(grant, rest).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.0.withdraw(claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        self.0.subscribe(claim).await
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        self.0.listen(claim)
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        self.0.downgrade(grant).await
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
