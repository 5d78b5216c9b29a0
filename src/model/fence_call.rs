//! [`FenceCall`]: the commit call of a fence, which the executor knows by its type.

use std::any::TypeId;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// The commit call of a fence: it makes its change under the permit of the run, and does nothing
/// else. Therefore a run whose call is dropped before it has sent the change is rolled back, and
/// not in doubt. In a future of your own around it the executor cannot know that.
#[must_use = "a commit call does nothing unless it is awaited"]
pub struct FenceCall<O>(BoxFuture<'static, O>);

impl<O> FenceCall<O> {
    #[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
    pub(crate) fn new(call: impl Future<Output = O> + Send + 'static) -> Self {
        Self(call.boxed())
    }
}

/// Whether a future is the call of a fence itself.
pub(crate) fn is_fence_call<F: Future + 'static>() -> bool {
    TypeId::of::<F>() == TypeId::of::<FenceCall<F::Output>>()
}

impl<O> Future for FenceCall<O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        self.0.as_mut().poll(cx)
    }
}

impl<O> fmt::Debug for FenceCall<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceCall").finish_non_exhaustive()
    }
}
