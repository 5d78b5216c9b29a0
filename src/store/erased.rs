//! Turns a [`Store`] into a trait object, so that handles have no type parameter.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, Released, Renewed, Revoke, Revoked, Store,
};
use crate::model::error::Error;
use crate::model::key::Key;

pub(crate) type AnyStore = Arc<dyn Erased>;

pub(crate) fn erase(store: impl Store) -> AnyStore {
    Arc::new(store)
}

/// [`Store`] with boxed futures, and the same contract.
pub(crate) trait Erased: Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn capability(&self) -> Capability;
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Acquired, Error>>;
    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Renewed>>;
    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Released>;
    fn rest<'a>(&'a self, grant: &'a Grant, rest: Duration) -> BoxFuture<'a, Released>;
    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Error>>;
    fn subscribe<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Hint, Error>>;
    fn listen(&self, claim: &Claim) -> Option<Hint>;
    fn downgrade<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Grant, Error>>;
    fn revoke<'a>(&'a self, key: &'a Key, how: Revoke) -> BoxFuture<'a, Result<Revoked, Error>>;
    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<LockInfo>, Error>>;
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockInfo>, Error>>;
    fn close(&self) -> BoxFuture<'_, Result<(), Error>>;
}

impl<S: Store> Erased for S {
    fn name(&self) -> &'static str {
        Store::name(self)
    }

    fn capability(&self) -> Capability {
        Store::capability(self)
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Acquired, Error>> {
        Box::pin(Store::acquire(self, claim))
    }

    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(Store::renew(self, grants))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Released> {
        Box::pin(Store::release(self, grant))
    }

    fn rest<'a>(&'a self, grant: &'a Grant, rest: Duration) -> BoxFuture<'a, Released> {
        Box::pin(Store::rest(self, grant, rest))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(Store::withdraw(self, claim))
    }

    fn subscribe<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Hint, Error>> {
        Box::pin(Store::subscribe(self, claim))
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        Store::listen(self, claim)
    }

    fn downgrade<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Grant, Error>> {
        Box::pin(Store::downgrade(self, grant))
    }

    fn revoke<'a>(&'a self, key: &'a Key, how: Revoke) -> BoxFuture<'a, Result<Revoked, Error>> {
        Box::pin(Store::revoke(self, key, how))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<LockInfo>, Error>> {
        Box::pin(Store::inspect(self, key))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockInfo>, Error>> {
        Box::pin(Store::list(self, prefix))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(Store::close(self))
    }
}
