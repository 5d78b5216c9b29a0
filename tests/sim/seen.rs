//! [`SeenStore`]: a shipped store, and what the judges must know of what a process does with it.

use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, Released, Renewed, Revoke, Revoked, Store,
};
use leasehold::{Error, Key};

use crate::net::Net;

/// The store of one life of one node.
#[derive(Clone)]
pub(crate) struct SeenStore<S> {
    pub(crate) store: S,
    pub(crate) net: Net,
    /// Not where the model reports the grants of its servers.
    pub(crate) reports_grants: bool,
}

impl<S: Store> std::fmt::Debug for SeenStore<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

impl<S: Store> SeenStore<S> {
    fn seen(&self, hint: Hint) -> Hint {
        let shared = self.net.shared.clone();
        Hint::granting(async move {
            let grant = hint.await?;
            shared.lock().coverage.sometimes("a message was a proof");
            Some(grant)
        })
    }

    fn gives_back(&self, claim: &Claim) {
        let mut state = self.net.shared.lock();
        if state.lives[self.net.node] == self.net.life {
            let now = state.now;
            state.truth.gives_back(*claim.owner.as_bytes(), now);
            crate::judge::given_back(&mut state, self.net.node, claim);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for SeenStore<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capability(&self) -> Capability {
        self.store.capability()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let acquired = self.store.acquire(claim).await?;
        if let Acquired::Granted(grant) = &acquired
            && self.reports_grants
        {
            let mut state = self.net.shared.lock();
            let token = grant.token.number();
            state.truth.grants += 1;
            state
                .truth
                .named(*claim.owner.as_bytes(), &claim.key, token);
            let (now, node) = (state.now, self.net.node as u64);
            state.log.note(now, "grant", [node, token, 0]);
        }
        Ok(acquired)
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        self.store.renew(grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        self.gives_back(&grant.claim);
        self.store.release(grant).await
    }

    async fn rest(&self, grant: &Grant, rest: std::time::Duration) -> Released {
        self.gives_back(&grant.claim);
        self.store.rest(grant, rest).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.gives_back(claim);
        self.store.withdraw(claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        Ok(self.seen(self.store.subscribe(claim).await?))
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        Some(self.seen(self.store.listen(claim)?))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        self.net.downgrades(grant);
        self.store.downgrade(grant).await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        self.store.revoke(key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        self.store.inspect(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.store.list(prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.store.close().await
    }
}
