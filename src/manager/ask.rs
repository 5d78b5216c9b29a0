//! A call for a lock: through the handlers to [`acquire`](super::acquire), and told to the observers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::acquire::{self, Patience, Want};
use super::guard::LockGuard;
use super::shared::{Shared, closed};
use crate::clock::Stamp;
use crate::handler::{AcquireOutcome, AcquireRequest, AcquireResponse, Event, Granted, Last};
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;

/// Holds the lock, or says that it is busy.
///
/// Cancel safe: as [`acquire::acquire`]; what handlers had attached is dropped.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    want: Want,
    patience: Patience,
) -> Result<Option<LockGuard>, Error> {
    if shared.observers.is_empty() {
        return through_chain(shared, want, patience).await;
    }
    let call = Call::begin(shared, &want);
    let answer = through_chain(shared, want, patience).await;
    call.end(&answer);
    answer
}

async fn through_chain(
    shared: &Arc<Shared>,
    want: Want,
    patience: Patience,
) -> Result<Option<LockGuard>, Error> {
    if shared.chain.is_empty() {
        return acquire::acquire(shared, want, patience).await;
    }
    if shared.closing.is_cancelled() {
        return Err(closed());
    }
    let wait = match patience {
        Patience::Once => None,
        Patience::Within(wait) => Some(wait),
    };
    let mut request = AcquireRequest::new(
        want.key.clone(),
        want.label.as_ref().unwrap_or(&shared.label).clone(),
        want.spans.ttl,
        shared.clock.clone(),
        wait,
    );
    // A single look at the store may take this long as well.
    let limit = wait
        .unwrap_or_default()
        .saturating_add(shared.settings.request_timeout);
    let behind = BehindChain {
        shared,
        want,
        guard: Mutex::default(),
    };
    let is_closed = async {
        shared.closing.cancelled().await;
        closed()
    };
    let answered = shared
        .chain
        .acquire(&mut request, &behind, limit, is_closed)
        .await;
    // A guard that the answer does not speak of is dropped here, and so released.
    let guard = behind.guard.into_inner();
    match (answered?, guard) {
        (AcquireResponse::Granted(_), Some(guard)) => Ok(Some(guard)),
        (AcquireResponse::Granted(_), None) => Err(Error::invalid(
            "a handler answered with the grant of another call; nothing is held by this call; mend the handler",
        )),
        (AcquireResponse::Busy, _) => Ok(None),
    }
}

/// What the last handler calls. The guard itself does not go through the chain: nobody there can keep or swap it.
struct BehindChain<'a> {
    shared: &'a Arc<Shared>,
    want: Want,
    guard: Mutex<Option<LockGuard>>,
}

impl Last for BehindChain<'_> {
    fn ask<'a>(
        &'a self,
        request: &'a mut AcquireRequest,
    ) -> BoxFuture<'a, Result<AcquireResponse, Error>> {
        Box::pin(async move {
            let patience = if request.waits() {
                Patience::Within(request.remaining())
            } else {
                Patience::Once
            };
            let held = acquire::acquire(self.shared, self.want.clone(), patience).await?;
            let Some(guard) = held else {
                return Ok(AcquireResponse::Busy);
            };
            let attachments = guard.attachments();
            attachments.put(request.take_attached());
            let granted = Granted::new(guard.lease().clone(), attachments);
            *self.guard.lock() = Some(guard);
            Ok(AcquireResponse::Granted(granted))
        })
    }
}

/// A call that observers will hear of, also when its future is dropped.
struct Call<'a> {
    shared: &'a Shared,
    key: Key,
    label: Label,
    started: Stamp,
    is_over: bool,
}

impl<'a> Call<'a> {
    fn begin(shared: &'a Shared, want: &Want) -> Self {
        Self {
            shared,
            key: want.key.clone(),
            label: want.label.as_ref().unwrap_or(&shared.label).clone(),
            started: shared.clock.stamp(),
            is_over: false,
        }
    }

    fn end(mut self, answer: &Result<Option<LockGuard>, Error>) {
        self.is_over = true;
        self.tell(match answer {
            Ok(Some(guard)) => AcquireOutcome::Held {
                token: guard.token(),
            },
            Ok(None) => AcquireOutcome::Busy,
            Err(error) => AcquireOutcome::Failed(error),
        });
    }

    fn tell(&self, outcome: AcquireOutcome<'_>) {
        self.shared.observers.tell(&Event::Acquire {
            key: &self.key,
            label: &self.label,
            outcome,
            wait: self.waited(),
        });
    }

    fn waited(&self) -> Duration {
        self.shared.clock.stamp().since(&self.started)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.tell(AcquireOutcome::Abandoned);
        }
    }
}
