//! The downgrade: a write hold becomes a read hold, without a gap.
//!
//! Runs under the write hold end first, since they may write. Then the store is asked. Then the
//! same grant continues under a new lease cell, with the token and the deadlines of the old one.
//! The old lease is over for good (I2).

use std::sync::Arc;

use super::context::ManagerContext;
use super::end::is_at_rest;
use super::guard::LockGuard;
use super::hold::{Hold, HoldOrigin};
use super::runtime::in_runtime;
use crate::model::error::{Ended, Error, ErrorKind};
use crate::store::{Grant, Released};

impl LockGuard {
    /// Ends this hold and gives the read hold that follows it. After an error, and if the future is
    /// dropped, the hold ends as with a dropped guard.
    pub(crate) async fn downgrade(mut self) -> Result<Self, Error> {
        let context = self.context();
        context.ensure_not_inside(self.key(), "waits for its own end")?;
        let next = in_runtime(&context.runtime, downgraded(context, self.hold())).await?;
        self.set_ended();
        Ok(Self::new(self.handle(), next))
    }
}

async fn downgraded(context: &ManagerContext, hold: &Arc<Hold>) -> Result<Arc<Hold>, Error> {
    // Another caller that ends the hold waits here: the hold either ends or becomes a read hold.
    let mut ended = hold.progress.results().ended.lock().await;
    if ended.is_some() {
        return Err(lost(hold));
    }
    hold.lease.close();
    if !is_at_rest(context, hold).await || hold.lease.is_in_doubt() {
        return Err(Error::in_doubt(format!(
            "something under the write hold is in doubt, so it does not become a read hold: key={}; its ttl ends it",
            hold.lease.key()
        )));
    }
    if hold.lease.remaining().is_zero() {
        // Without a lease the lock may be another holder's; in a fork it is the parent's.
        return Err(lost(hold));
    }
    let limit = context.settings.request_timeout;
    let asked = context.store.downgrade(&hold.origin.grant);
    let grant = context.clock.timeout(limit, asked).await;
    let grant = grant.unwrap_or_else(|| {
        Err(Error::in_doubt(format!(
            "no answer to a downgrade within {limit:?}: key={}; the hold is ended",
            hold.lease.key()
        )))
    })?;
    let next = successor(hold, grant).ok_or_else(|| lost(hold))?;
    let now = context.clock.stamp();
    context.holds.transfer(hold, &next, &now, None)?;
    next.take_span(hold);
    *ended = Some(Released::Released);
    Ok(next)
}

/// The same hold under a new lease cell; `None` if the lease is over.
fn successor(hold: &Hold, grant: Grant) -> Option<Arc<Hold>> {
    let lease = hold.lease.handoff()?;
    let origin = HoldOrigin {
        grant,
        handoffs: 0,
        ..hold.origin.clone()
    };
    // It was held since the write hold began.
    let next = Hold::new(lease, origin, hold.began, None);
    // What handlers attached to the write hold stays attached.
    next.attachments().put(hold.attachments().take());
    next.set_reported(hold.is_reported());
    Some(next)
}

fn lost(hold: &Hold) -> Error {
    let reason = hold.lease.lost_reason().unwrap_or(Ended::Lapsed);
    Error::new(
        ErrorKind::Lost(reason),
        format!(
            "the write hold ended before it became a read hold: key={}; ask for the lock again",
            hold.lease.key()
        ),
    )
}
