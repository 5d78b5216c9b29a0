//! [`Serving`]: a process that takes part until it is stopped.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::sync::CancellationToken;

use crate::model::error::Error;
use crate::recipes::term::stopped_by;

/// A process that takes part: [`Shards::serve`](super::Shards::serve). It is a future, which
/// completes with an error and in no other way, unless it is [stopped](Self::until).
#[must_use = "nothing happens until it is awaited"]
pub struct Serving<F> {
    future: Pin<Box<F>>,
    stop: CancellationToken,
}

impl<F> Serving<F>
where
    F: Future<Output = Result<(), Error>>,
{
    pub(super) fn new(future: F, stop: CancellationToken) -> Self {
        Self {
            future: Box::pin(future),
            stop,
        }
    }

    /// Leaves in order when the token is cancelled, and then completes.
    ///
    /// The process gives up its membership first. It keeps each shard until another member waits
    /// for it, for one TTL at most; where no other member is left, it keeps none. Then the work of
    /// the shard is [asked to leave](super::Shard::leaving), the shard is released, and its next
    /// owner begins at once.
    ///
    /// # Errors
    ///
    /// As [`serve`](super::Shards::serve).
    ///
    /// # Cancel safety
    ///
    /// As [`serve`](super::Shards::serve).
    pub async fn until(self, token: CancellationToken) -> Result<(), Error> {
        let Self { future, stop } = self;
        stopped_by(token, future, || stop.cancel()).await
    }
}

impl<F> Future for Serving<F>
where
    F: Future<Output = Result<(), Error>>,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<F> fmt::Debug for Serving<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Serving")
    }
}
