//! [`Caller`]: one call for a lock, first in the local queue, then at the store.

use std::time::Duration;

use super::guard::LockGuard;
use super::handle::Handle;
use super::handoff::claim;
use super::hooks::ObservedWait;
use super::lifetime::closed;
use super::queue::{CountedWaiter, Entered, Passed, Turn};
use super::wish::{Rest, Wish};
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
    counted: Option<CountedWaiter>,
    observed: Option<ObservedWait<'a>>,
    /// How many requests in a row have failed.
    pub(super) failures: u32,
    /// Why the first of them failed that had its full time.
    pub(super) failure: Option<Error>,
    /// The first request for the last claim was refused. What a new claim is answered says why.
    pub(super) was_refused: bool,
    /// How often this caller waited without a subscription although the store sends messages.
    pub(super) polls: u32,
    /// It waited in the local queue.
    pub(super) was_queued: bool,
}

/// The pause before a retry doubles with each failure, this many times at most.
const MOST_DOUBLINGS: u32 = 3;

/// How one claim ended.
pub(super) enum ClaimEnd {
    Held(LockGuard),
    /// A new claim may hold: a former holder in this process still has runs in progress, what was
    /// granted to this claim has been taken away, or another caller holds the lock and the time is
    /// over.
    Again,
    /// The job that it waited for is done.
    Done,
    /// A new claim may succeed.
    Failed(Error),
    /// The store refused the first request for the claim: it breaks a rule, or the store executed
    /// it twice, and what it was granted at first has been taken away.
    Refused(Error),
}

/// Holds the lock; `None` if somebody else holds it.
///
/// Cancel safe: a request to the store that was not answered is withdrawn in the background, and
/// the caller leaves the local queue.
pub(super) async fn acquire_without_handlers(
    handle: &Handle,
    wish: &Wish,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, Error> {
    let mut caller = Caller::new(handle, wish, wait)?;
    if let Some(guard) = caller.take_turn().await? {
        return Ok(Some(guard));
    }
    if caller.turn.is_none() {
        return caller.in_vain();
    }
    caller.give_way().await;
    // One claim after the other, until one holds or the budget is spent.
    loop {
        if !caller.former_runs_ended().await? {
            return caller.in_vain();
        }
        match caller.claim().await? {
            ClaimEnd::Held(guard) => return Ok(Some(guard)),
            ClaimEnd::Done => return Ok(None),
            ClaimEnd::Again if caller.left().is_zero() => return caller.in_vain(),
            ClaimEnd::Again => {
                // For one, the manager's task may not have noticed yet that a former holder's lease
                // is over.
                let pause = handle.context().retry_pause().min(caller.left());
                caller.pause(pause).await;
            }
            ClaimEnd::Refused(error) if caller.was_refused => return Err(error),
            ClaimEnd::Refused(_) => caller.was_refused = true,
            ClaimEnd::Failed(error) => {
                let pause = caller.back_off();
                if caller.left() <= pause {
                    return Err(error);
                }
                caller.count()?;
                caller.pause(pause).await;
            }
        }
    }
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
            was_queued: false,
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

    /// From now on it is one of the callers that wait, and observers see that.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already.
    pub(super) fn begin_wait(&mut self) -> Result<(), Error> {
        self.count()?;
        let hooks = &self.handle.context().hooks;
        self.observed = (self.observed.take()).or_else(|| hooks.begin_wait(&self.wish.key));
        Ok(())
    }

    /// Counts it among those that wait, once, whatever it waits for: another caller of this
    /// process, a holder or a store that fails.
    pub(super) fn count(&mut self) -> Result<(), Error> {
        if self.counted.is_none() && self.wait.is_some() && !self.wish.is_counted {
            self.counted = Some(self.handle.context().counted()?);
        }
        Ok(())
    }

    /// Waits in the local queue for the right to ask the store, or for a hold that is handed off.
    /// It has neither if none came in time.
    ///
    /// Dropped, it leaves the queue. What it was called with is dropped too, and so ends or passes
    /// on.
    async fn take_turn(&mut self) -> Result<Option<LockGuard>, Error> {
        let context = self.handle.context();
        let may_wait = self.wait.is_some();
        let Some((entered, counted)) = context.queues.enter(self.wish, may_wait, self.started)?
        else {
            return Ok(None);
        };
        self.counted = counted;
        let called = match entered {
            Entered::Turn(turn) => {
                self.turn = Some(turn);
                return Ok(None);
            }
            Entered::Queue(called) => called,
        };
        self.begin_wait()?;
        self.was_queued = true;
        let called = context.clock.timeout(self.left(), called).await;
        if self.left().is_zero() {
            // It may have been called long ago, and not polled since.
            return Ok(None);
        }
        let turn = match called {
            None => return Ok(None),
            Some(Err(_)) => return Err(closed()),
            Some(Ok(Passed::Turn(turn))) => {
                turn.show(Duration::ZERO);
                turn
            }
            Some(Ok(Passed::Hold(hold))) => match claim(context, hold) {
                Some(hold) => return Ok(Some(LockGuard::new(self.handle, hold))),
                // It came too late. At the end of the queue a slow caller might come too late again
                // and again.
                None => context.queues.bypass(&self.wish.key)?,
            },
        };
        self.turn = Some(turn);
        Ok(None)
    }

    /// The wait was in vain, because of a holder or because the store grants nothing yet.
    fn in_vain(&self) -> Result<Option<LockGuard>, Error> {
        let (context, now) = (self.handle.context(), self.handle.context().clock.stamp());
        (context.readiness).ensure_ready(&self.wish.key, context.store.name(), &now)?;
        Ok(None)
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

    /// Waits for the runs of a former holder in this process. False if the budget is spent before
    /// they end.
    async fn former_runs_ended(&mut self) -> Result<bool, Error> {
        let context = self.handle.context();
        let key = &self.wish.key;
        let slice = context.settings.max_poll_interval;
        while let Some(lease) = context.queues.former(key) {
            context.ensure_may_wait_for(key)?;
            self.begin_wait()?;
            let left = self.left();
            if left.is_zero() {
                return Ok(false);
            }
            self.show(slice);
            (context.clock)
                .timeout(left.min(slice), lease.drained())
                .await;
        }
        Ok(true)
    }

    /// Whether it waits for a job, and the key rests because that is done.
    pub(super) async fn finds_it_done(&self) -> bool {
        if !matches!(self.wish.times.rest, Some(Rest::AfterWork(_))) {
            return false;
        }
        let context = self.handle.context();
        let look = context.store.inspect(&self.wish.key);
        let seen = context.clock.timeout(self.request_limit(), look).await;
        matches!(seen, Some(Ok(Some(info))) if info.is_resting)
    }

    /// The error that the caller gets for a request that failed. The log has the first one of a
    /// row, if the caller tries again: it may wait for long.
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

    /// Lets other processes ask first, if ours had the key for as long as it may: they were woken
    /// by the release, and a look at the store takes as long as their requests. Where the store
    /// queues we are behind them anyway.
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
