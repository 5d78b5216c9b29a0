//! [`Caller`]: one call for a lock, first in the local queue, then at the store.

use std::time::Duration;

use super::context::ManagerContext;
use super::guard::LockGuard;
use super::handle::Handle;
use super::handoff::{claim, end_unclaimed};
use super::hooks::ObservedWait;
use super::lifetime::closed;
use super::place::{Counted, Place};
use super::queue::{Entered, Passed, Turn};
use super::wish::Wish;
use crate::model::error::{Error, ErrorKind};

/// One call for a lock, with one budget for the local queue and the store together.
pub(super) struct Caller<'a> {
    pub(super) handle: &'a Handle,
    pub(super) wish: &'a Wish,
    /// How long it waits; `None`: one attempt.
    pub(super) wait: Option<Duration>,
    /// When it began, in nanoseconds of the boot clock.
    started: u64,
    /// The right to ask the store, until a hold has it.
    pub(super) turn: Option<Turn>,
    counted: Option<Counted>,
    observed: Option<ObservedWait<'a>>,
    /// How many requests in a row have failed.
    pub(super) failures: u32,
    /// Why the first of them failed that had its full time.
    pub(super) failure: Option<Error>,
    /// The first request for the last claim was refused. What a new claim is answered says why.
    pub(super) was_refused: bool,
    /// How often this caller waited without a subscription although the store sends messages.
    pub(super) polls: u32,
}

/// The pause before a retry doubles with each failure, this many times at most.
const MOST_DOUBLINGS: u32 = 3;

/// How one claim ended.
pub(super) enum ClaimEnd {
    Held(LockGuard),
    /// A new claim may hold: a former holder in this process still has runs in progress, what was granted to this claim has been
    /// taken away, or another caller holds the lock and the time is over.
    Again,
    /// A new claim may succeed.
    Failed(Error),
    /// The store refused the first request for the claim: it breaks a rule, or the store executed it twice, and what it was granted at
    /// first has been taken away.
    Refused(Error),
}

/// Holds the lock; `None` if somebody else holds it.
///
/// Cancel safe: a request to the store that was not answered is withdrawn in the background, and the caller leaves the local
/// queue.
pub(super) async fn acquire_without_handlers(
    handle: &Handle,
    wish: &Wish,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, Error> {
    let mut caller = Caller::new(handle, wish, wait)?;
    let held = match caller.take_turn().await? {
        None => None,
        Some(Passed::Hold(hold)) => Some(LockGuard::new(handle, hold)),
        Some(Passed::Turn(turn)) => {
            caller.turn = Some(turn);
            caller.ask().await?
        }
    };
    if held.is_none() {
        let (context, now) = (handle.context(), handle.context().clock.stamp());
        (context.readiness).ensure_ready(&wish.key, context.store.name(), &now)?;
    }
    Ok(held)
}

impl<'a> Caller<'a> {
    fn new(handle: &'a Handle, wish: &'a Wish, wait: Option<Duration>) -> Result<Self, Error> {
        let context = handle.context();
        context.lifetime.ensure_open()?;
        wish.ensure_supported(context.store.name(), &context.capability)?;
        if wait.is_some() {
            context.ensure_may_wait_for(&wish.key)?;
        }
        Ok(Self {
            handle,
            wish,
            wait,
            started: context.clock.boot(),
            turn: None,
            counted: None,
            observed: None,
            failures: 0,
            failure: None,
            was_refused: false,
            polls: 0,
        })
    }

    /// What is left of the time to wait.
    pub(super) fn left(&self) -> Duration {
        let passed = (self.handle.context().clock.boot()).saturating_sub(self.started);
        let wait = self.wait.unwrap_or_default();
        wait.saturating_sub(Duration::from_nanos(passed))
    }

    /// The limit of one request.
    pub(super) fn request_limit(&self) -> Duration {
        let most = self.handle.context().settings.request_timeout;
        self.wait.map_or(most, |_| most.min(self.left()))
    }

    /// From now on observers see that it waits.
    pub(super) fn begin_wait(&mut self) {
        let hooks = &self.handle.context().hooks;
        self.observed = (self.observed.take()).or_else(|| hooks.begin_wait(&self.wish.key));
    }

    /// Waits in the local queue for the right to ask the store, or for a hold that is handed off; `None` if neither came in time.
    async fn take_turn(&mut self) -> Result<Option<Passed>, Error> {
        let context = self.handle.context();
        let may_wait = self.wait.is_some();
        let place = match context.queues.enter(self.wish, may_wait, self.started)? {
            None => return Ok(None),
            Some(Entered::Turn(turn, counted)) => {
                self.counted = counted;
                return Ok(Some(Passed::Turn(turn)));
            }
            Some(Entered::Place(place)) => place,
        };
        self.begin_wait();
        let mut waiting = InQueue { context, place };
        let called = waiting.place.called();
        let called = context.clock.timeout(self.left(), called).await;
        if self.left().is_zero() {
            // It may have been called long ago, and not polled since.
            waiting.end(called.flatten());
            return Ok(None);
        }
        match called {
            None => Ok(None),
            Some(None) => Err(closed()),
            Some(Some(Passed::Hold(hold))) if !claim(context, &hold) => {
                // It came too late. At the end of the queue a slow caller might come too late again and again.
                self.counted = waiting.place.take_counted();
                Ok(Some(Passed::Turn(context.queues.bypass(&self.wish.key))))
            }
            Some(Some(called)) => {
                if let Passed::Turn(turn) = &called {
                    turn.show(Duration::ZERO);
                }
                Ok(Some(called))
            }
        }
    }

    /// One claim after the other, until one holds or the budget is spent.
    async fn ask(&mut self) -> Result<Option<LockGuard>, Error> {
        self.give_way().await;
        loop {
            if !self.former_runs_ended().await? {
                return Ok(None);
            }
            match self.claim().await? {
                ClaimEnd::Held(guard) => return Ok(Some(guard)),
                ClaimEnd::Again if self.left().is_zero() => return Ok(None),
                ClaimEnd::Again => {
                    // For one, the manager's task may not have noticed yet that a former holder's lease is over.
                    let context = self.handle.context();
                    let pause = context.retry_pause().min(self.left());
                    self.pause(pause).await;
                }
                ClaimEnd::Refused(error) if self.was_refused => return Err(error),
                ClaimEnd::Refused(_) => self.was_refused = true,
                ClaimEnd::Failed(error) => {
                    let pause = self.back_off();
                    if self.left() <= pause {
                        return Err(error);
                    }
                    self.pause(pause).await;
                }
            }
        }
    }

    /// Waits for `span`, or for the shutdown.
    pub(super) async fn pause(&self, span: Duration) {
        self.show(span);
        self.handle.context().pause(span).await;
    }

    /// The caller lives, and asks again after `pause`.
    pub(super) fn show(&self, pause: Duration) {
        if let Some(turn) = &self.turn {
            turn.show(pause);
        }
    }

    /// Waits for the runs of a former holder in this process. False if the budget is spent before they end.
    async fn former_runs_ended(&mut self) -> Result<bool, Error> {
        let context = self.handle.context();
        let key = &self.wish.key;
        if !context.former_runs.contains(key) {
            return Ok(true);
        }
        context.ensure_may_wait_for(key)?;
        self.begin_wait();
        let slice = context.settings.max_poll_interval;
        while context.former_runs.contains(key) {
            let left = self.left();
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
    pub(super) fn reported(
        &mut self,
        error: Error,
        was_cut_short: bool,
        again: Option<Duration>,
    ) -> Error {
        match &self.failure {
            // The earlier failure explains more than a last request that had too little time.
            Some(earlier) if was_cut_short => return error.because(earlier.clone()),
            Some(_) => {}
            None if was_cut_short || error.kind() == ErrorKind::Contended => {}
            None => {
                self.failure = Some(error.clone());
                if let Some(left) = again {
                    let failures = &self.handle.context().failures;
                    failures.unanswered(&self.wish.key, left, &error);
                }
            }
        }
        error
    }

    /// The pause before a store that failed is asked again.
    pub(super) fn back_off(&self) -> Duration {
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
        let look = context.store.inspect(&self.wish.key);
        // Only the time that it takes matters.
        let _ = (context.clock).timeout(self.request_limit(), look).await;
    }
}

/// A caller in the local queue. Dropped, it ends a hold that it was given and did not take.
struct InQueue<'a> {
    context: &'a ManagerContext,
    place: Place<Passed>,
}

impl InQueue<'_> {
    fn end(&self, called: Option<Passed>) {
        if let Some(Passed::Hold(hold)) = called {
            end_unclaimed(self.context, hold);
        }
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        let called = self.place.leave();
        self.end(called);
    }
}
