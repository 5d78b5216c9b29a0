//! One claim of a [`Caller`]: asked for until it is granted, fails, or the time is over.

use std::time::Duration;

use super::caller::{Caller, ClaimEnd};
use super::guard::LockGuard;
use super::hold::{Hold, HoldOrigin};
use super::open_claim::OpenClaim;
use super::queue::Turn;
use crate::clock::Stamp;
use crate::lease::{Granted, Lease};
use crate::model::error::{Error, ErrorKind};
use crate::model::span::nanos;
use crate::store::{Acquired, Fencing, Grant, Hint, LockMode, Queue};

/// How often the interval of polls doubles while no message can arrive.
const MAX_POLL_DOUBLINGS: u32 = 8;

impl Caller<'_> {
    /// One claim: asked again as long as that may help, until it is granted, fails, or the budget
    /// is spent.
    pub(super) async fn claim(&mut self) -> Result<ClaimEnd, Error> {
        let context = self.handle.context();
        let place_ttl = if self.wait.is_some() {
            context.place_ttl()
        } else {
            Duration::ZERO
        };
        let mut open = OpenClaim::new(context, self.wish, place_ttl)?;
        let mut hint = self.subscribed_first(&open).await;
        if hint.is_none() && !self.wish.bypasses_queue() {
            // It is not known whether it has to wait.
            open.defer_place();
        }
        let mut was_busy = false;
        loop {
            let limit = self.request_limit();
            context.lifetime.ensure_open()?;
            hint = hint.or_else(|| open.listen());
            if hint.is_some() {
                let _ = open.take_place();
            }
            // Before the request leaves (I1).
            let sent_at = context.clock.stamp();
            let was_asked = open.was_asked;
            let asked = context.store.acquire(open.ask());
            let answer = context.clock.timeout(limit, asked).await;
            let busy_for = match open.answered(answer, limit) {
                Ok(Acquired::Granted(grant)) => return self.granted(open, grant, sent_at),
                Ok(Acquired::Busy { remaining }) => remaining,
                Ok(Acquired::NotReady { retry_after }) => Some(retry_after),
                // The wait ended before an answer could arrive. The claim is withdrawn as it is
                // dropped.
                Err(_) if was_busy && self.left().is_zero() => return Ok(ClaimEnd::Again),
                Err(error) if is_retryable(&error) => {
                    self.failures += 1;
                    let pause = self.back_off();
                    let left = self.left();
                    let error =
                        self.reported(error, open.was_cut_short, (left > pause).then_some(left));
                    if !open.has_place() || left <= pause {
                        return Ok(ClaimEnd::Failed(error));
                    }
                    // The same claim again, so that a lost answer costs no place in the store's
                    // queue.
                    self.count()?;
                    self.pause(pause).await;
                    continue;
                }
                // The first request broke no rule, so this one breaks none. The claim was granted,
                // which its caller never learned, and what it was granted has been taken away.
                Err(error) if was_asked && error.kind() == ErrorKind::Invalid => {
                    return Ok(ClaimEnd::Again);
                }
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    return Ok(ClaimEnd::Refused(error));
                }
                Err(error) => return Err(error),
            };
            // After a wait, or behind a subscription. Before that it is known, or asked once more.
            let may_have_changed = was_busy || self.was_queued || hint.is_some();
            was_busy = true;
            self.failures = 0;
            self.failure = None;
            self.was_refused = false;
            let left = self.left();
            if left.is_zero() {
                return Ok(ClaimEnd::Again);
            }
            if may_have_changed && self.finds_it_done().await {
                return Ok(ClaimEnd::Done);
            }
            self.begin_wait()?;
            // Subscribe, then look, then wait: a wake-up between look and subscription is not
            // missed.
            match &mut hint {
                None if context.capability.wakes => {
                    let has_no_place = open.take_place();
                    hint = open.subscribe(limit.min(left)).await;
                    if hint.is_none() && !has_no_place {
                        self.polls += 1;
                        self.poll(busy_for).await;
                    }
                }
                subscribed => {
                    let granted = self.wait_for(subscribed, busy_for).await;
                    let now = context.clock.stamp();
                    let is_usable = |grant: &Grant| {
                        let lease = self.lease_of(grant, &now);
                        lease.ensure(context.settings.min_usable).is_ok()
                    };
                    // One that came too late is granted again, for the full TTL.
                    if let Some(grant) = granted.filter(is_usable) {
                        return self.granted(open, grant, now);
                    }
                }
            }
            if self.left().is_zero() {
                return Ok(ClaimEnd::Again);
            }
        }
    }

    /// Subscribes before the first request, where that saves one, if other callers of this process
    /// ask for the key, wait for it or hold it: then it is hardly free.
    async fn subscribed_first(&self, open: &OpenClaim<'_>) -> Option<Hint> {
        let context = self.handle.context();
        let is_contended = || self.turn.as_ref().is_some_and(|turn| turn.beside() > 0);
        let limit = context.settings.request_timeout;
        if !context.capability.subscribes_first
            || self.wish.mode == LockMode::Read
            || !open.has_place()
            || !is_contended()
            || self.left() <= limit
        {
            return None;
        }
        match open.listen() {
            None => open.subscribe(limit).await,
            listening => listening,
        }
    }

    /// Waits until the hint resolves, perhaps with a grant, the holder's time may be over, or the
    /// next poll is due. A hint that has not resolved stays, so the poll needs no subscription of
    /// its own.
    async fn wait_for(&self, hint: &mut Option<Hint>, busy_for: Option<Duration>) -> Option<Grant> {
        let context = self.handle.context();
        let settings = &context.settings;
        let most = settings.max_poll_interval;
        // It is woken when it is called, and whoever is before it asks when a holder's time is
        // over.
        let only_keeps =
            busy_for.is_none() && hint.is_some() && context.capability.queue == Queue::Handover;
        let poll = if only_keeps {
            context.keeping_pause()
        } else {
            busy_for.unwrap_or(most).min(most)
        };
        let pause = poll.max(settings.retry_delay) + context.retry_pause() - settings.retry_delay;
        let pause = pause.min(self.left());
        let Some(waiting) = hint else {
            self.pause(context.retry_pause().min(pause)).await;
            return None;
        };
        // Whoever waits for this caller has to see that it lives, and not only when it asks.
        let is_shown = self.turn.as_ref().is_some_and(Turn::is_shown);
        let slice = if is_shown {
            settings.max_poll_interval
        } else {
            Duration::MAX
        };
        let end = context.clock.boot().saturating_add(nanos(pause));
        let resolved = loop {
            let left = Duration::from_nanos(end.saturating_sub(context.clock.boot()));
            let part = left.min(slice);
            self.show(part);
            let resolved = context.pause_or(part, &mut *waiting).await;
            if resolved.is_some() || part == left || context.is_closing() {
                break resolved;
            }
        };
        if resolved.is_some() {
            *hint = None;
        }
        resolved.flatten()
    }

    /// Waits until the next poll where the store could send a message and cannot now. The interval
    /// doubles, so that many waiters without messages do not flood the store.
    async fn poll(&self, busy_for: Option<Duration>) {
        let context = self.handle.context();
        let most = context.settings.max_poll_interval;
        let most = busy_for
            .unwrap_or(most)
            .min(most)
            .max(context.retry_pause());
        let pause =
            context.retry_pause() * (1 << self.polls.saturating_sub(1).min(MAX_POLL_DOUBLINGS));
        self.pause(pause.min(most).min(self.left())).await;
    }

    /// The lease of a grant. `sent_at`: when its request was sent, if the proof has no instant of
    /// its own.
    fn lease_of(&self, grant: &Grant, sent_at: &Stamp) -> Lease {
        let context = self.handle.context();
        let granted = Granted {
            key: &grant.claim.key,
            token: grant.token,
            is_fencing: context.capability.fencing == Fencing::Monotonic,
            sent_at: grant.proof.sent_at.as_ref().unwrap_or(sent_at),
            ttl: self.wish.times.leased(grant.proof.ttl),
        };
        Lease::new(context.clock.clone(), context.settings.terms(), &granted)
    }

    /// There is no await from here to the guard, so nothing can be lost in between. `sent_at`: when
    /// the request was sent, or when a message granted without one.
    fn granted(
        &mut self,
        open: OpenClaim<'_>,
        grant: Grant,
        sent_at: Stamp,
    ) -> Result<ClaimEnd, Error> {
        let context = self.handle.context();
        let settings = &context.settings;
        let key = &self.wish.key;
        let now = context.clock.stamp();
        if self.wait.is_some() && self.left().is_zero() {
            // Its caller was not polled for a while. The claim is withdrawn as it is dropped.
            return Ok(ClaimEnd::Again);
        }
        let lease = self.lease_of(&grant, &sent_at);
        if let Err(error) = lease.ensure(settings.min_usable) {
            // Too little is left for any work. The claim is withdrawn as it is dropped.
            return Ok(ClaimEnd::Failed(Error::unavailable(format!(
                "the store granted, but too late or for too short: {error}; raise ttl or check the store's latency"
            ))));
        }
        let turn = (self.turn)
            .take_if(|turn| !context.holds.has_unnoticed_runs(key, &now) && turn.granted());
        if turn.is_none() {
            // Runs of a former holder would undo their work over ours. The claim is withdrawn as it
            // is dropped, so other processes can have it.
            return Ok(ClaimEnd::Again);
        }
        let origin = HoldOrigin {
            grant,
            granted_at: sent_at,
            handoffs: 0,
            times: self.wish.times,
            allows_handoff: self.wish.allows_handoff(),
            was_in_doubt: open.was_in_doubt,
        };
        let hold = Hold::new(lease, origin, now, turn);
        if let Err(error) = context.holds.adopt(&hold, settings.terms()) {
            // Withdrawn before the turn ends, because a shutdown waits for the turn.
            drop(open);
            return Err(error);
        }
        open.close();
        Ok(ClaimEnd::Held(LockGuard::new(self.handle, hold)))
    }
}

/// Whether a new claim may succeed.
/// A refusal that names its pause is the caller's to wait for.
fn is_retryable(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::InDoubt | ErrorKind::Contended
    ) && error.retry_after().is_none()
}
