//! Turns a [`Fence`] into a trait object, so that locks have no type parameter.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Fence;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

pub(crate) type AnyFence = Arc<dyn ErasedFence>;

pub(crate) fn erase(fence: impl Fence) -> AnyFence {
    Arc::new(fence)
}

/// [`Fence`] with a boxed future, and the same contract.
pub(crate) trait ErasedFence: Debug + Send + Sync {
    fn raise<'a>(&'a self, key: &'a Key, token: FencingToken) -> BoxFuture<'a, Result<(), Error>>;
}

impl<F: Fence> ErasedFence for F {
    fn raise<'a>(&'a self, key: &'a Key, token: FencingToken) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(Fence::raise(self, key, token))
    }
}
