//! A write hold becomes a read hold, without a gap.
//!
//! Runs under the write hold end first, since they may write; then the store is asked; then the same grant goes on under a
//! new lease cell, with the token and the deadlines of the old one. The old lease is over for good (I2).

use std::sync::Arc;

use super::guard::LockGuard;
use super::hold::{Hold, Origin};
use super::in_runtime;
use crate::lease::Lease;
use crate::model::error::{Error, ErrorKind, LostReason};
use crate::store::{Grant, Released};

impl LockGuard {
    /// Ends this hold and gives the read hold that comes of it. On an error, and if the future is dropped, the hold is ended
    /// as by a dropped guard.
    pub(crate) async fn downgrade(mut self) -> Result<Self, Error> {
        let hold = Arc::clone(self.hold());
        let next = in_runtime(hold.shared.runtime(), hold.downgrade()).await?;
        self.set_ended();
        Ok(Self::new(next))
    }
}

impl Hold {
    async fn downgrade(self: &Arc<Self>) -> Result<Arc<Self>, Error> {
        // Whoever ends the hold waits: it is either ended or goes on as a read hold.
        let mut ended = self.ended.lock().await;
        if ended.is_some() {
            return Err(self.lost());
        }
        self.lease.close();
        let is_drained = self.drained().await && self.compensated().await;
        if !is_drained || self.lease.is_in_doubt() {
            return Err(Error::in_doubt(format!(
                "something under the write hold is in doubt, so that it does not become a read hold: key={}; its ttl ends it",
                self.lease.key()
            )));
        }
        let limit = self.shared.settings.request_timeout;
        let asked = self.shared.store.downgrade(&self.from.grant);
        let grant = self.shared.clock.timeout(limit, asked).await;
        let grant = grant.unwrap_or_else(|| {
            Err(Error::in_doubt(format!(
                "no answer to a downgrade within {limit:?}: key={}; the hold is ended",
                self.lease.key()
            )))
        })?;
        let next = self.goes_on(grant).ok_or_else(|| self.lost())?;
        self.shared.go_on(self, &next)?;
        *ended = Some(Released::Released);
        Ok(next)
    }

    /// The same hold under a new lease cell; `None` if the lease is over.
    fn goes_on(&self, grant: Grant) -> Option<Arc<Self>> {
        let lease: Lease = self.lease.handoff()?;
        let turn = self.turn.lock().take()?;
        let shared = Arc::clone(&self.shared);
        let from = Origin {
            grant,
            handoffs: 0,
            ..self.from.clone()
        };
        let mut next = Self::new(shared, lease, from, turn);
        // Nobody else has it yet. It was held since the write hold began.
        Arc::get_mut(&mut next)?.began = self.began;
        // What handlers tied to the hold stays tied to it.
        next.attachments().put(self.attachments().take());
        Some(next)
    }

    fn lost(&self) -> Error {
        let reason = self.lease.lost_reason().unwrap_or(LostReason::Lapsed);
        Error::new(
            ErrorKind::Lost(reason),
            format!(
                "the write hold ended before it became a read hold: key={}; ask for the lock again",
                self.lease.key()
            ),
        )
    }
}
