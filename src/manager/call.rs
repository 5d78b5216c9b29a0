//! A call for a lock: through the handlers to [`acquire_without_handlers`], and reported to the
//! observers.

use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use super::caller::acquire_without_handlers;
use super::context::ManagerContext;
use super::guard::LockGuard;
use super::handle::Handle;
use super::lifetime::closed;
use super::wish::Wish;
use crate::clock::Stamp;
use crate::handler::{AcquireOutcome, AcquireRequest, AcquireResponse, Event, Granted, Last};
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;

/// Holds the lock; `None` if it is busy.
///
/// Cancel safe: as [`acquire_without_handlers`]; what handlers had attached is dropped.
pub(crate) async fn acquire(
    handle: &Handle,
    wish: &Wish,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, Error> {
    let span = tracing::info_span!(
        target: "leasehold::manager",
        "lock.acquire",
        key = %wish.key,
        purpose = wish.label.purpose(),
        token = Empty,
        outcome = Empty,
    );
    let observers = &handle.context().hooks.observers;
    let call = (!observers.is_empty()).then(|| ObservedCall::begin(handle.context(), wish));
    let answer = async {
        if handle.context().hooks.chain.is_empty() {
            acquire_without_handlers(handle, wish, wait).await
        } else {
            through_chain(handle, wish, wait).await
        }
    };
    let answer = answer.instrument(span.clone()).await;
    if !span.is_disabled() {
        record(&span, &answer);
    }
    drop(span);
    // In the caller's own span: an observer may log.
    if let Some(call) = call {
        call.end(&answer);
    }
    if let Ok(Some(guard)) = &answer {
        guard.hold().begin_span();
    }
    answer
}

fn record(span: &Span, answer: &Result<Option<LockGuard>, Error>) {
    let outcome = match answer {
        Ok(Some(guard)) => {
            span.record("token", display(guard.token()));
            "held".to_owned()
        }
        Ok(None) => "busy".to_owned(),
        Err(error) => error.kind().to_string(),
    };
    span.record("outcome", outcome);
}

async fn through_chain(
    handle: &Handle,
    wish: &Wish,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, Error> {
    let context = handle.context();
    if context.is_closing() {
        return Err(closed());
    }
    let mut passed = AcquireRequest::new(
        wish.key.clone(),
        wish.label.clone(),
        context.asked_ttl(&wish.times),
        context.clock.clone(),
        wait,
    );
    // One request to the store may take this long in addition.
    let limit = wait
        .unwrap_or_default()
        .saturating_add(context.settings.request_timeout);
    let behind = BehindChain {
        handle,
        wish,
        guard: Mutex::default(),
    };
    let is_closed = async {
        context.lifetime.closing().await;
        closed()
    };
    let chain = &context.hooks.chain;
    let answered = chain.acquire(&mut passed, &behind, limit, is_closed).await;
    // A guard that the answer does not name is dropped here, and so released.
    let guard = behind.guard.into_inner();
    match (answered?, guard) {
        (AcquireResponse::Granted(_), Some(guard)) => Ok(Some(guard.claimed())),
        (AcquireResponse::Granted(_), None) => Err(Error::invalid(
            "a handler answered with the grant of another call; this call holds nothing; fix the handler",
        )),
        (AcquireResponse::Busy, _) => Ok(None),
    }
}

/// What the last handler calls. The guard itself does not pass through the chain, so no handler can
/// keep or swap it.
struct BehindChain<'a> {
    handle: &'a Handle,
    wish: &'a Wish,
    guard: Mutex<Option<LockGuard>>,
}

impl Last for BehindChain<'_> {
    fn ask<'a>(
        &'a self,
        request: &'a mut AcquireRequest,
    ) -> BoxFuture<'a, Result<AcquireResponse, Error>> {
        Box::pin(async move {
            let wait = request.waits().then(|| request.remaining());
            let held = acquire_without_handlers(self.handle, self.wish, wait).await?;
            let Some(mut guard) = held else {
                return Ok(AcquireResponse::Busy);
            };
            // What the handlers do then has a limit too.
            let limit = self.handle.context().settings.request_timeout;
            guard.expect_within(request.remaining().saturating_add(limit));
            let attachments = guard.attachments();
            attachments.put(request.take_attached());
            let granted = Granted::new(guard.lease().clone(), attachments);
            *self.guard.lock() = Some(guard);
            Ok(AcquireResponse::Granted(granted))
        })
    }
}

/// A call that is reported to the observers, also when its future is dropped.
struct ObservedCall<'a> {
    context: &'a ManagerContext,
    key: Key,
    label: Label,
    started: Stamp,
    is_over: bool,
}

impl<'a> ObservedCall<'a> {
    fn begin(context: &'a ManagerContext, wish: &Wish) -> Self {
        Self {
            context,
            key: wish.key.clone(),
            label: wish.label.clone(),
            started: context.clock.stamp(),
            is_over: false,
        }
    }

    fn end(mut self, answer: &Result<Option<LockGuard>, Error>) {
        self.is_over = true;
        self.report(match answer {
            Ok(Some(guard)) => {
                // Before the report: the hold may end at any time.
                guard.hold().set_reported(true);
                AcquireOutcome::Held {
                    lease: guard.lease(),
                }
            }
            Ok(None) => AcquireOutcome::Busy,
            Err(error) => AcquireOutcome::Failed(error),
        });
    }

    fn report(&self, outcome: AcquireOutcome<'_>) {
        self.context.hooks.observers.notify(&Event::Acquire {
            key: &self.key,
            label: &self.label,
            outcome,
            wait: self.waited(),
        });
    }

    fn waited(&self) -> Duration {
        self.context.clock.stamp().since(&self.started)
    }
}

impl Drop for ObservedCall<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.report(AcquireOutcome::Abandoned);
        }
    }
}
