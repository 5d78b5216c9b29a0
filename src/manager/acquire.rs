//! How a caller gets a hold: first the local queue, then the store.

use std::time::Duration;

use super::acquire_loop::AcquireLoop;
use super::budget::Budget;
use super::context::ManagerContext;
use super::guard::LockGuard;
use super::handle::Handle;
use super::handoff::{claim, end_unclaimed};
use super::lifetime::closed;
use super::place::Place;
use super::queue::{Called, Entered};
use super::request::{LockRequest, Patience};
use crate::model::error::Error;

/// Holds the lock; `None` if somebody else holds it.
///
/// Cancel safe: a request to the store that was not answered is withdrawn in the background, and the caller leaves the local
/// queue.
pub(super) async fn acquire_without_handlers(
    handle: &Handle,
    request: LockRequest,
    patience: Patience,
) -> Result<Option<LockGuard>, Error> {
    let context = handle.context();
    let key = request.key.clone();
    let held = take_turn(handle, request, patience).await?;
    if held.is_none() {
        let now = context.clock.stamp();
        (context.readiness).ensure_ready(&key, context.store.name(), &now)?;
    }
    Ok(held)
}

async fn take_turn(
    handle: &Handle,
    request: LockRequest,
    patience: Patience,
) -> Result<Option<LockGuard>, Error> {
    let context = handle.context();
    context.lifetime.ensure_open()?;
    request.ensure_supported(context.store.name(), &context.capability)?;
    let budget = Budget::begin(context, patience);
    let may_wait = patience != Patience::Once;
    if may_wait {
        context.ensure_may_wait_for(&request.key)?;
    }
    let (turn, _counted, wait) = match context.queues.enter(&request, may_wait, budget.started())? {
        None => return Ok(None),
        Some(Entered::Turn(turn, counted)) => (turn, counted, None),
        Some(Entered::Place(place)) => {
            let wait = context.hooks.begin_wait(&request.key);
            let mut waiting = Waiting { context, place };
            let called = context.clock.timeout(budget.left(), waiting.place.called());
            let called = called.await;
            if budget.left().is_zero() {
                // It may have been called long ago, and not polled since.
                waiting.end(called.flatten());
                return Ok(None);
            }
            match called {
                None => return Ok(None),
                Some(None) => return Err(closed()),
                Some(Some(Called::Turn(turn))) => {
                    turn.show(Duration::ZERO);
                    (turn, None, wait)
                }
                Some(Some(Called::Hold(hold))) => {
                    if claim(context, &hold) {
                        return Ok(Some(LockGuard::new(handle, hold)));
                    }
                    // It came too late. At the end of the queue a slow caller might come too late again and again.
                    let counted = waiting.place.take_counted();
                    (context.queues.bypass(&request.key), counted, wait)
                }
            }
        }
    };
    AcquireLoop::new(handle, request, budget, turn, wait)
        .run()
        .await
}

/// A caller in the local queue. Dropped, it ends a hold that it was given and did not take.
struct Waiting<'a> {
    context: &'a ManagerContext,
    place: Place<Called>,
}

impl Waiting<'_> {
    fn end(&self, called: Option<Called>) {
        if let Some(Called::Hold(hold)) = called {
            end_unclaimed(self.context, hold);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let called = self.place.leave();
        self.end(called);
    }
}
