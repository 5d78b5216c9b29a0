//! [`Failures`]: what the log says about renewals that fail. One line when they begin to fail, one when the store answers again,
//! and the cause with each lost lease.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::engine::HoldId;
use super::hold::Hold;
use crate::clock::Stamp;
use crate::lease::Lease;
use crate::model::error::{Error, LostReason};
use crate::model::span::in_millis;

/// The target of these lines: a name that stays the same when files move.
const TARGET: &str = "leasehold::manager";

/// A batch that fails logs this many keys, and the number of the others.
const MOST_LINES: usize = 10;

/// The holds whose last renewal failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    failing: HashMap<HoldId, Failure>,
    /// The log says that renewals fail.
    is_reported: bool,
}

#[derive(Debug)]
struct Failure {
    since: Stamp,
    last_error: Error,
    lease: Lease,
}

impl Failures {
    /// A batch of renewals was judged: the holds whose renewals have begun or ceased to fail, and the errors of all that failed.
    pub(super) fn judged(
        &mut self,
        turned: &[(HoldId, &Arc<Hold>, bool)],
        errors: Vec<(HoldId, Error)>,
        now: &Stamp,
    ) {
        if self.failing.is_empty() && turned.is_empty() {
            return;
        }
        let mut errors: HashMap<_, _> = errors.into_iter().collect();
        for (id, failure) in &mut self.failing {
            if let Some(error) = errors.remove(id) {
                failure.last_error = error;
            }
        }
        let mut lines = 0;
        for (id, hold, is_failing) in turned {
            let Some(error) = errors.remove(id).filter(|_| *is_failing) else {
                self.failing.remove(id);
                continue;
            };
            lines += 1;
            let lease = &hold.lease;
            if lines <= MOST_LINES {
                tracing::warn!(target: TARGET, key = %lease.key(), remaining = ?in_millis(lease.remaining()), %error, "renewals fail");
            }
            let failure = Failure {
                since: *now,
                last_error: error,
                lease: lease.clone(),
            };
            self.failing.insert(*id, failure);
            self.is_reported = true;
        }
        if lines > MOST_LINES {
            let more = lines - MOST_LINES;
            tracing::warn!(target: TARGET, more, "renewals of other locks fail too");
        }
    }

    /// The store has proven a renewal. Reported once no hold is failing any more.
    pub(super) fn proven(&mut self) {
        // A hold may end while its renewals fail.
        self.failing
            .retain(|_, failure| failure.lease.lost_reason().is_none());
        if self.failing.is_empty() && std::mem::take(&mut self.is_reported) {
            tracing::info!(target: TARGET, "store reachable again");
        }
    }

    /// A lease is lost.
    pub(super) fn lost(
        &mut self,
        id: Option<&HoldId>,
        lease: &Lease,
        reason: LostReason,
        now: &Stamp,
    ) {
        let failure = id.and_then(|id| self.failing.remove(id));
        if reason == LostReason::Released {
            return;
        }
        let failing_for: Option<Duration> = failure
            .as_ref()
            .map(|failure| in_millis(now.since(&failure.since)));
        let last_error = failure.map(|failure| failure.last_error);
        tracing::warn!(
            target: TARGET,
            key = %lease.key(),
            token = %lease.token(),
            %reason,
            last_error = last_error.as_ref().map(tracing::field::display),
            failing_for = failing_for.as_ref().map(tracing::field::debug),
            "lease lost"
        );
    }
}
