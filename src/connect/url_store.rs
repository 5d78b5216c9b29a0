//! [`UrlStore`]: a store that was made from a URL.

use std::fmt;
use std::time::Duration;

use super::plan::Plan;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::settings::Settings;
use crate::store::{
    Acquired, AnyStore, Capability, Claim, Erased, Grant, Hint, LockInfo, Released, Renewed,
    Revoke, Revoked, Store,
};

/// A store that was made from a URL, for code that works on any store: the conformance suite, a
/// store that wraps another.
///
/// Cloning is cheap; all clones share their connections.
#[derive(Clone)]
pub struct UrlStore(AnyStore);

impl UrlStore {
    /// Connects to the store of a URL. For the URLs see
    /// [`LockManager::connect`](crate::LockManager::connect).
    ///
    /// # Errors
    ///
    /// As [`LockManager::connect`](crate::LockManager::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves at most, on Redis, an attempt to connect that ends by
    /// itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_for(url, Settings::default()).await
    }

    /// Connects to the store of a URL, as a manager with these settings would.
    ///
    /// # Errors
    ///
    /// As [`LockManager::builder_for_url`](crate::LockManager::builder_for_url).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_for(url: &str, settings: Settings) -> Result<Self, Error> {
        Ok(Self(Plan::of(url, settings)?.store().await?))
    }
}

impl fmt::Debug for UrlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UrlStore").field(&self.0).finish()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for UrlStore {
    fn name(&self) -> &'static str {
        Erased::name(&*self.0)
    }

    fn capability(&self) -> Capability {
        Erased::capability(&*self.0)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        Erased::acquire(&*self.0, claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        Erased::renew(&*self.0, grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        Erased::release(&*self.0, grant).await
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        Erased::rest(&*self.0, grant, rest).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        Erased::withdraw(&*self.0, claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        Erased::subscribe(&*self.0, claim).await
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        Erased::listen(&*self.0, claim)
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        Erased::downgrade(&*self.0, grant).await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        Erased::revoke(&*self.0, key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        Erased::inspect(&*self.0, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        Erased::list(&*self.0, prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        Erased::close(&*self.0).await
    }
}
