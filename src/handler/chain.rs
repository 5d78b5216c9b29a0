//! [`Chain`]: the handlers of a manager in their order, and an acquire through them.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use super::granted::AcquireResponse;
use super::hooks::{ErasedHandler, Handler};
use super::next::{Depth, Last, Next};
use super::request::AcquireRequest;
use crate::model::caught::{Caught, caught, drop_caught};
use crate::model::error::Error;

/// The handlers, outermost first. Cloning is cheap.
#[derive(Clone, Default)]
pub(crate) struct Chain {
    pub(super) handlers: Arc<[Arc<dyn ErasedHandler>]>,
}

impl Chain {
    /// Puts a handler behind those that are there.
    pub(crate) fn add(&mut self, handler: impl Handler) {
        let added: Arc<dyn ErasedHandler> = Arc::new(handler);
        self.handlers = self.handlers.iter().cloned().chain([added]).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// Puts `request` through the chain to `last`, within `limit` and until `closed` resolves.
    ///
    /// # Errors
    ///
    /// What the outermost handler answered; `Unavailable` if one panicked or the time ran out; what
    /// `closed` resolved with.
    pub(crate) async fn acquire(
        &self,
        request: &mut AcquireRequest,
        last: &dyn Last,
        limit: Duration,
        closed: impl Future<Output = Error>,
    ) -> Result<AcquireResponse, Error> {
        let depth = Depth::default();
        let clock = request.clock().clone();
        let next = Next {
            handlers: &self.handlers,
            reached: 0,
            last,
            depth: &depth,
        };
        let asked = AssertUnwindSafe(next.run(request)).catch_unwind();
        let mut asked = select(Box::pin(asked), Box::pin(closed));
        // Where the call is can be read until it is dropped.
        let answered = match clock.timeout(limit, &mut asked).await {
            Some(Either::Left((Ok(answered), _))) => answered,
            Some(Either::Right((error, cut_off))) => {
                drop_cut_off(cut_off);
                Err(error)
            }
            Some(Either::Left((Err(payload), _))) => {
                Caught::by(payload);
                Err(panicked(depth.name(&self.handlers)))
            }
            None => Err(did_not_answer(depth.name(&self.handlers), limit)),
        };
        drop_cut_off(asked);
        if let Err(error) = &answered {
            self.notify_each(|handler| handler.acquire_failed(request, error));
        }
        answered
    }

    pub(super) fn notify_each(&self, notify: impl Fn(&dyn ErasedHandler)) {
        for handler in &*self.handlers {
            if caught(|| notify(&**handler)).is_err() {
                tracing::error!(
                    target: "leasehold::handler", handler = handler.name(),
                    "a handler panicked when it was notified of a failure"
                );
            }
        }
    }
}

/// Drops a call that handlers have not ended. A panic of theirs is not the caller's.
pub(super) fn drop_cut_off<F: Future>(cut_off: F) {
    if drop_caught(cut_off).is_err() {
        tracing::error!(target: "leasehold::handler", "a handler panicked as it was cut off");
    }
}

/// Without the panic's own text, which may contain a secret.
pub(super) fn panicked(name: &str) -> Error {
    Error::unavailable(format!(
        "a handler panicked: handler={name}; the call was ended without it; fix the handler"
    ))
}

pub(super) fn did_not_answer(name: &str, limit: Duration) -> Error {
    Error::unavailable(format!(
        "the chain of handlers did not answer within {limit:?}: at={name}; the call was ended without it; bound what it awaits"
    ))
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.handlers.iter().map(|handler| handler.name());
        f.debug_list().entries(names).finish()
    }
}
