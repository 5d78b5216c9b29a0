//! [`Failures`]: what the log says about a store that does not answer. One line when renewals, or
//! the requests of an acquire, begin to fail, one when the store answers again, and the cause with
//! each lost lease.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::engine::HoldId;
use super::hold::Hold;
use crate::clock::Stamp;
use crate::lease::Lease;
use crate::model::error::{Ended, Error};
use crate::model::key::Key;
use crate::model::span::in_millis;

/// The target of these lines: a name that stays the same when files move.
const TARGET: &str = "leasehold::manager";

/// A batch that fails logs this many keys, and the number of the others.
const MOST_LINES: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The holds whose last renewal failed.
    failing: Mutex<HashMap<HoldId, RenewalFailure>>,
    /// The log says that the store does not answer.
    is_reported: AtomicBool,
}

#[derive(Debug)]
struct RenewalFailure {
    since: Stamp,
    last_error: Error,
    lease: Lease,
}

impl Failures {
    /// A batch of renewals was judged: the holds whose renewals have begun or ceased to fail, and
    /// the errors of all that failed.
    pub(super) fn judged(
        &self,
        turned: &[(HoldId, &Arc<Hold>, bool)],
        errors: Vec<(HoldId, Error)>,
        now: &Stamp,
    ) {
        // No line is written under the mutex: a subscriber may take its time.
        let mut begun = Vec::new();
        {
            let mut failing = self.failing.lock();
            if failing.is_empty() && turned.is_empty() {
                return;
            }
            let mut errors: HashMap<_, _> = errors.into_iter().collect();
            for (id, failure) in failing.iter_mut() {
                if let Some(error) = errors.remove(id) {
                    failure.last_error = error;
                }
            }
            for (id, hold, is_failing) in turned {
                // One that is released now has nothing to renew.
                let is_over = hold.lease.lost_reason().is_some();
                let Some(error) = errors.remove(id).filter(|_| *is_failing && !is_over) else {
                    failing.remove(id);
                    continue;
                };
                let lease = hold.lease.clone();
                begun.push((Arc::clone(hold), error.clone()));
                let failure = RenewalFailure {
                    since: *now,
                    last_error: error,
                    lease,
                };
                failing.insert(*id, failure);
                self.is_reported.store(true, Ordering::Relaxed);
            }
        }
        for (hold, error) in begun.iter().take(MOST_LINES) {
            let lease = &hold.lease;
            let remaining = in_millis(lease.remaining());
            tracing::warn!(
                target: TARGET,
                key = %lease.key(),
                purpose = hold.purpose(),
                ?remaining,
                %error,
                "renewals fail"
            );
        }
        if begun.len() > MOST_LINES {
            let more = begun.len() - MOST_LINES;
            tracing::warn!(target: TARGET, more, "renewals of other locks fail too");
        }
    }

    /// A request of an acquire had no answer, and it tries again for as long as is `left` of its
    /// wait.
    pub(super) fn unanswered(&self, key: &Key, left: Duration, error: &Error) {
        self.is_reported.store(true, Ordering::Relaxed);
        tracing::warn!(target: TARGET, %key, left = ?in_millis(left), %error, "the store does not answer an acquire; trying again");
    }

    /// The store has answered an acquire, or proven a renewal. Reported once no hold is failing any
    /// more.
    pub(super) fn answered(&self) {
        if !self.is_reported.load(Ordering::Relaxed) {
            return;
        }
        let is_over = {
            let mut failing = self.failing.lock();
            // A hold may end while its renewals fail.
            failing.retain(|_, failure| failure.lease.lost_reason().is_none());
            failing.is_empty()
        };
        if is_over && self.is_reported.swap(false, Ordering::Relaxed) {
            tracing::info!(target: TARGET, "store reachable again");
        }
    }

    /// A lease is lost.
    pub(super) fn lost(&self, hold: &Hold, reason: Ended, now: &Stamp) {
        let lease = &hold.lease;
        let failure = hold.id.get().and_then(|id| self.failing.lock().remove(id));
        if !reason.is_loss() {
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
            purpose = hold.purpose(),
            %reason,
            last_error = last_error.as_ref().map(tracing::field::display),
            failing_for = failing_for.as_ref().map(tracing::field::debug),
            "lease lost"
        );
    }
}
