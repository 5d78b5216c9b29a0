//! How a caller gets a hold: first the local queue, then the store.

use super::acquire_loop::AcquireLoop;
use super::budget::Budget;
use super::context::ManagerContext;
use super::guard::LockGuard;
use super::handle::Handle;
use super::handoff::end_unclaimed;
use super::lifetime::closed;
use super::queue::{Called, Entered, Place};
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
    let (turn, _counted, wait) = loop {
        match context.queues.enter(&request, may_wait)? {
            None => return Ok(None),
            Some(Entered::Turn(turn, counted)) => break (turn, counted, None),
            Some(Entered::Place(place)) => {
                let wait = context.hooks.begin_wait(&request.key);
                let mut waiting = Waiting { context, place };
                let called = waiting.place.called();
                match context.clock.timeout(budget.left(), called).await {
                    None => return Ok(None),
                    Some(None) => return Err(closed()),
                    Some(Some(Called::Turn(turn))) => break (turn, None, wait),
                    Some(Some(Called::Hold(hold))) => {
                        if hold.lease.ensure(context.settings.min_usable).is_ok() {
                            return Ok(Some(LockGuard::new(handle, hold)));
                        }
                        // This caller came to it too late.
                        end_unclaimed(context, hold);
                        if budget.left().is_zero() {
                            return Ok(None);
                        }
                    }
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
    place: Place,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(Called::Hold(hold)) = self.place.leave() {
            end_unclaimed(self.context, hold);
        }
    }
}
