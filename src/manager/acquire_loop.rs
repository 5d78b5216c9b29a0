//! [`AcquireLoop`]: asks the store until it grants, or the budget is spent.

use std::time::Duration;

use super::attempt::Attempt;
use super::budget::Budget;
use super::guard::LockGuard;
use super::handle::Handle;
use super::hold::{Hold, Origin};
use super::hooks::ObservedWait;
use super::queue::Turn;
use super::request::LockRequest;
use crate::clock::Stamp;
use crate::lease::{Granted, Lease};
use crate::model::error::{Error, ErrorKind};
use crate::model::span::nanos;
use crate::store::{Acquired, Fencing, Grant, Hint, LockMode, Queue};

/// The caller whose turn it is to ask the store.
pub(super) struct AcquireLoop<'a> {
    handle: &'a Handle,
    request: LockRequest,
    budget: Budget<'a>,
    turn: Option<Turn>,
    wait: Option<ObservedWait<'a>>,
    /// How many requests in a row have failed.
    failures: u32,
    /// Why the first of them failed that had its full time.
    failure: Option<Error>,
    /// The first request for the last claim was refused. What a new claim is answered says why.
    was_refused: bool,
    /// How often this caller waited without a subscription although the store sends messages.
    polls: u32,
}

/// The pause before a retry doubles with each failure, this many times at most.
const MOST_DOUBLINGS: u32 = 3;
/// How often the interval of polls doubles while no message can arrive.
const MAX_POLL_DOUBLINGS: u32 = 8;

/// How one claim ended.
enum ClaimEnd {
    Held(Box<LockGuard>),
    /// Another caller holds the lock, and the budget is spent.
    Busy,
    /// This claim cannot hold, and a new one may: a former holder in this process still has runs in progress, or what was
    /// granted to the claim has been taken away.
    Again,
    /// A new claim may succeed.
    Failed(Error),
    /// The store refused the first request for the claim: it breaks a rule, or the store executed it twice, and what it was granted at
    /// first has been taken away.
    Refused(Error),
}

impl<'a> AcquireLoop<'a> {
    pub(super) fn new(
        handle: &'a Handle,
        request: LockRequest,
        budget: Budget<'a>,
        turn: Turn,
        wait: Option<ObservedWait<'a>>,
    ) -> Self {
        Self {
            handle,
            request,
            budget,
            turn: Some(turn),
            wait,
            failures: 0,
            failure: None,
            was_refused: false,
            polls: 0,
        }
    }

    /// One claim after the other, until one holds or the budget is spent.
    pub(super) async fn run(&mut self) -> Result<Option<LockGuard>, Error> {
        self.give_way().await;
        loop {
            if !self.former_runs_ended().await? {
                return Ok(None);
            }
            match self.claim().await? {
                ClaimEnd::Held(guard) => return Ok(Some(*guard)),
                ClaimEnd::Again if self.budget.left().is_zero() => return Ok(None),
                ClaimEnd::Again => {
                    // For one, the manager's task may not have noticed yet that a former holder's lease is over.
                    let context = self.handle.context();
                    let pause = context.retry_pause().min(self.budget.left());
                    self.pause(pause).await;
                }
                ClaimEnd::Busy => return Ok(None),
                ClaimEnd::Refused(error) if self.was_refused => return Err(error),
                ClaimEnd::Refused(_) => self.was_refused = true,
                ClaimEnd::Failed(error) => {
                    let pause = self.back_off();
                    if self.budget.left() <= pause {
                        return Err(error);
                    }
                    self.pause(pause).await;
                }
            }
        }
    }

    /// Waits for `span`, or for the shutdown.
    async fn pause(&self, span: Duration) {
        self.show(span);
        self.handle.context().pause(span).await;
    }

    /// The caller lives, and asks again after `pause`.
    fn show(&self, pause: Duration) {
        if let Some(turn) = &self.turn {
            turn.show(pause);
        }
    }

    /// Waits for the runs of a former holder in this process. False if the budget is spent before they end.
    async fn former_runs_ended(&mut self) -> Result<bool, Error> {
        let context = self.handle.context();
        let key = &self.request.key;
        if !context.former_runs.contains(key) {
            return Ok(true);
        }
        context.ensure_may_wait_for(key)?;
        self.wait = self.wait.take().or_else(|| context.hooks.begin_wait(key));
        let slice = context.settings.max_poll_interval;
        while context.former_runs.contains(key) {
            let left = self.budget.left();
            if left.is_zero() {
                return Ok(false);
            }
            self.show(slice);
            let ended = context.former_runs.ended(key);
            context.clock.timeout(left.min(slice), ended).await;
        }
        Ok(true)
    }

    /// The error that the caller gets for a request that failed. The log has the first one of a row, if the caller tries again: it may
    /// wait for long.
    fn reported(&mut self, error: Error, was_cut_short: bool, again: Option<Duration>) -> Error {
        match &self.failure {
            // The earlier failure explains more than a last request that had too little time.
            Some(earlier) if was_cut_short => return error.because(earlier.clone()),
            Some(_) => {}
            None if was_cut_short || error.kind() == ErrorKind::Contended => {}
            None => {
                self.failure = Some(error.clone());
                if let Some(left) = again {
                    let failures = &self.handle.context().failures;
                    failures.unanswered(&self.request.key, left, &error);
                }
            }
        }
        error
    }

    /// The pause before a store that failed is asked again.
    fn back_off(&self) -> Duration {
        let context = self.handle.context();
        let pause = context.retry_pause();
        let longer = pause * (1 << self.failures.saturating_sub(1).min(MOST_DOUBLINGS));
        // A place in the store's queue is kept for as long as two polls.
        longer.min(context.settings.max_poll_interval).max(pause)
    }

    /// Lets other processes ask first, if ours had the key for as long as it may: they were woken by the release, and a look at
    /// the store takes as long as their requests. Where the store queues we are behind them anyway.
    async fn give_way(&mut self) {
        let context = self.handle.context();
        let has_to = self.turn.as_mut().is_some_and(Turn::take_give_way);
        if !has_to || context.capability.is_fair() {
            return;
        }
        let look = context.store.inspect(&self.request.key);
        // Only the time that it takes matters.
        let _ = (context.clock)
            .timeout(self.budget.request_limit(), look)
            .await;
    }

    /// One claim: asked again as long as that may help, until it is granted, fails, or the budget is spent.
    async fn claim(&mut self) -> Result<ClaimEnd, Error> {
        let context = self.handle.context();
        let place_ttl = if self.budget.waits() {
            context.place_ttl()
        } else {
            Duration::ZERO
        };
        let mut attempt = Attempt::new(context, &self.request, place_ttl)?;
        let mut hint = self.subscribed_first(&attempt).await;
        if hint.is_none() && !self.request.bypasses_queue() {
            // It is not known whether it has to wait.
            attempt.defer_place();
        }
        let mut was_busy = false;
        loop {
            let limit = self.budget.request_limit();
            context.lifetime.ensure_open()?;
            hint = hint.or_else(|| attempt.listen());
            if hint.is_some() {
                let _ = attempt.take_place();
            }
            // Before the request leaves (I1).
            let sent_at = context.clock.stamp();
            let was_asked = attempt.was_asked;
            let busy_for = match attempt.ask(limit).await {
                Ok(Acquired::Granted(grant)) => return self.granted(attempt, grant, sent_at),
                Ok(Acquired::Busy { remaining }) => remaining,
                Ok(Acquired::NotReady { retry_after }) => Some(retry_after),
                // The wait ended before an answer could arrive. The claim is withdrawn with the attempt.
                Err(_) if was_busy && self.budget.left().is_zero() => return Ok(ClaimEnd::Busy),
                Err(error) if is_retryable(error.kind()) => {
                    self.failures += 1;
                    let pause = self.back_off();
                    let left = self.budget.left();
                    let error =
                        self.reported(error, attempt.was_cut_short, (left > pause).then_some(left));
                    if !attempt.has_place() || left <= pause {
                        return Ok(ClaimEnd::Failed(error));
                    }
                    // The same claim again, so that a lost answer costs no place in the store's queue.
                    self.pause(pause).await;
                    continue;
                }
                // The first request broke no rule, so this one breaks none. The claim was granted, which its caller never learned,
                // and what it was granted has been taken away.
                Err(error) if was_asked && error.kind() == ErrorKind::Invalid => {
                    return Ok(ClaimEnd::Again);
                }
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    return Ok(ClaimEnd::Refused(error));
                }
                Err(error) => return Err(error),
            };
            was_busy = true;
            self.failures = 0;
            self.failure = None;
            self.was_refused = false;
            let left = self.budget.left();
            if left.is_zero() {
                return Ok(ClaimEnd::Busy);
            }
            let begin_wait = || context.hooks.begin_wait(&self.request.key);
            self.wait = self.wait.take().or_else(begin_wait);
            // Subscribe, then look, then wait: a wake-up between look and subscription is not missed.
            match &mut hint {
                None if context.capability.wakes => {
                    let has_no_place = attempt.take_place();
                    hint = attempt.subscribe(limit.min(left)).await;
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
                        return self.granted(attempt, grant, now);
                    }
                }
            }
            if self.budget.left().is_zero() {
                return Ok(ClaimEnd::Busy);
            }
        }
    }

    /// Subscribes before the first request, where that saves one, if other callers of this process ask for the key, wait for it
    /// or hold it: then it is hardly free.
    async fn subscribed_first(&self, attempt: &Attempt<'_>) -> Option<Hint> {
        let context = self.handle.context();
        let is_contended = || self.turn.as_ref().is_some_and(|turn| turn.beside() > 0);
        let limit = context.settings.request_timeout;
        if !context.capability.subscribes_first
            || self.request.mode == LockMode::Read
            || !attempt.has_place()
            || !is_contended()
            || self.budget.left() <= limit
        {
            return None;
        }
        match attempt.listen() {
            None => attempt.subscribe(limit).await,
            listening => listening,
        }
    }

    /// Waits until the hint resolves, perhaps with a grant, the holder's time may be over, or the next poll is due. A hint that has
    /// not resolved stays, so the poll needs no subscription of its own.
    async fn wait_for(&self, hint: &mut Option<Hint>, busy_for: Option<Duration>) -> Option<Grant> {
        let context = self.handle.context();
        let settings = &context.settings;
        let most = settings.max_poll_interval;
        // It is woken when it is called, and whoever is before it asks when a holder's time is over.
        let only_keeps =
            busy_for.is_none() && hint.is_some() && context.capability.queue == Queue::Handover;
        let poll = if only_keeps {
            context.keeping_pause()
        } else {
            busy_for.unwrap_or(most).min(most)
        };
        let pause = poll.max(settings.retry_delay) + context.retry_pause() - settings.retry_delay;
        let pause = pause.min(self.budget.left());
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

    /// Waits until the next poll where the store could send a message and cannot now. The interval doubles, so that many
    /// waiters without messages do not flood the store.
    async fn poll(&self, busy_for: Option<Duration>) {
        let context = self.handle.context();
        let most = context.settings.max_poll_interval;
        let most = busy_for
            .unwrap_or(most)
            .min(most)
            .max(context.retry_pause());
        let pause =
            context.retry_pause() * (1 << self.polls.saturating_sub(1).min(MAX_POLL_DOUBLINGS));
        self.pause(pause.min(most).min(self.budget.left())).await;
    }

    /// The lease of a grant. `sent_at`: when its request was sent, if the proof has no instant of its own.
    fn lease_of(&self, grant: &Grant, sent_at: &Stamp) -> Lease {
        let context = self.handle.context();
        let granted = Granted {
            key: &grant.claim.key,
            token: grant.token,
            is_fencing: context.capability.fencing == Fencing::Monotonic,
            sent_at: grant.proof.sent_at.as_ref().unwrap_or(sent_at),
            ttl: self.request.times.leased(grant.proof.ttl),
        };
        Lease::new(context.clock.clone(), context.settings.terms(), &granted)
    }

    /// There is no await from here to the guard, so nothing can be lost in between. `sent_at`: when the request was sent, or when a
    /// message granted without one.
    fn granted(
        &mut self,
        attempt: Attempt<'_>,
        grant: Grant,
        sent_at: Stamp,
    ) -> Result<ClaimEnd, Error> {
        let context = self.handle.context();
        let settings = &context.settings;
        let key = &self.request.key;
        let now = context.clock.stamp();
        if context.former_runs.contains(key) || context.holds.has_unnoticed_runs(key, &now) {
            // They would undo their work over ours. The claim is withdrawn with the attempt, so other processes can have it.
            return Ok(ClaimEnd::Again);
        }
        if self.budget.is_over() {
            // Its caller was not polled for a while. The claim is withdrawn with the attempt.
            return Ok(ClaimEnd::Busy);
        }
        let lease = self.lease_of(&grant, &sent_at);
        if let Err(error) = lease.ensure(settings.min_usable) {
            // Too little is left for any work. The attempt is withdrawn when it is dropped.
            return Ok(ClaimEnd::Failed(Error::unavailable(format!(
                "the store granted, but too late or for too short: {error}; raise ttl or check the store's latency"
            ))));
        }
        let Some(turn) = self.turn.take() else {
            return Err(Error::closed("an acquire continued after its end"));
        };
        turn.keep();
        let origin = Origin {
            grant,
            granted_at: sent_at,
            handoffs: 0,
            times: self.request.times,
            allows_handoff: self.request.allows_handoff,
            was_in_doubt: attempt.was_in_doubt,
        };
        let hold = Hold::new(lease, origin, now, turn);
        if let Err(error) = context.holds.adopt(&hold, settings.terms()) {
            // Withdrawn before the turn ends, because a shutdown waits for the turn.
            drop(attempt);
            return Err(error);
        }
        attempt.close();
        Ok(ClaimEnd::Held(Box::new(LockGuard::new(self.handle, hold))))
    }
}

/// Whether a new claim may succeed.
fn is_retryable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::InDoubt | ErrorKind::Contended
    )
}
