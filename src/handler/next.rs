//! [`Next`] and [`NextRelease`]: the rest of a chain, to be run at most once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;

use super::granted::AcquireResponse;
use super::hooks::ErasedHandler;
use super::request::{AcquireRequest, ReleaseRequest};
use super::step::ReleaseStep;
use crate::model::error::Error;
use crate::store::Released;

/// The steps behind the last handler: the local queue and the store.
pub(crate) trait Last: Sync {
    fn ask<'a>(
        &'a self,
        request: &'a mut AcquireRequest,
    ) -> BoxFuture<'a, Result<AcquireResponse, Error>>;
}

/// Where a call is: the number of handlers around the place. For messages.
#[derive(Debug, Default)]
pub(super) struct Depth(AtomicUsize);

impl Depth {
    /// The call goes on behind `reached` handlers, and is back with the last of them when the
    /// answer is dropped: also where that handler has given up what is behind it.
    fn behind(&self, reached: usize) -> Behind<'_> {
        self.0.store(reached + 1, Ordering::Relaxed);
        Behind {
            depth: self,
            reached,
        }
    }

    /// The active handler, or the step behind all of them.
    pub(super) fn name(&self, handlers: &[Arc<dyn ErasedHandler>]) -> &'static str {
        match self.0.load(Ordering::Relaxed).checked_sub(1) {
            Some(index) => handlers.get(index).map_or("the store", |h| h.name()),
            None => "none",
        }
    }
}

struct Behind<'a> {
    depth: &'a Depth,
    reached: usize,
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        // A panic comes from where the call was.
        if !std::thread::panicking() {
            self.depth.0.store(self.reached, Ordering::Relaxed);
        }
    }
}

/// The handlers behind this one, then the local queue and the store. Running it consumes it.
#[must_use = "a handler that does not run `next` refuses the acquire"]
pub struct Next<'a> {
    pub(super) handlers: &'a [Arc<dyn ErasedHandler>],
    pub(super) reached: usize,
    pub(super) last: &'a dyn Last,
    pub(super) depth: &'a Depth,
}

impl Next<'_> {
    /// Passes the call on, and returns the answer.
    ///
    /// # Errors
    ///
    /// Whatever a handler behind this one or the store failed with.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the request is given up, and a grant is released in the background.
    pub async fn run(self, request: &mut AcquireRequest) -> Result<AcquireResponse, Error> {
        let Self {
            handlers,
            reached,
            last,
            depth,
        } = self;
        let _behind = depth.behind(reached);
        match handlers.get(reached) {
            Some(handler) => {
                let next = Next {
                    handlers,
                    reached: reached + 1,
                    last,
                    depth,
                };
                handler.acquire(request, next).await
            }
            None => last.ask(request).await,
        }
    }
}

/// The handlers behind this one, then the release itself. Running it consumes it.
#[must_use = "dropped, it leaves out the handlers behind this one"]
pub struct NextRelease<'a> {
    pub(super) handlers: &'a [Arc<dyn ErasedHandler>],
    pub(super) reached: usize,
    pub(super) request: &'a ReleaseRequest,
    pub(super) step: &'a ReleaseStep,
    pub(super) depth: &'a Depth,
}

impl NextRelease<'_> {
    /// Continues with the release and returns its result.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the release continues.
    pub async fn run(self) -> Released {
        let Self {
            handlers,
            reached,
            request,
            step,
            depth,
        } = self;
        let _behind = depth.behind(reached);
        if let Some(handler) = handlers.get(reached) {
            let next = NextRelease {
                handlers,
                reached: reached + 1,
                request,
                step,
                depth,
            };
            handler.release(request, next).await;
        }
        // Also if a handler behind this one has dropped its `next`.
        step.go_on().await
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next")
            .field("left", &(self.handlers.len() - self.reached))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for NextRelease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextRelease")
            .field("left", &(self.handlers.len() - self.reached))
            .finish_non_exhaustive()
    }
}
