//! [`Hold`]: the data of one hold, from its grant to its one end. [`end`](super::end) ends it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tracing::Span;
use tracing::field::Empty;

use super::detached_work::DetachedWork;
use super::engine::HoldId;
use super::queue::Turn;
use super::wish::{HoldTimes, Rest};
use crate::clock::{Clock, Stamp};
use crate::handler::Attachments;
use crate::lease::Lease;
use crate::model::error::Ended;
use crate::store::{Grant, Released};

/// One grant, as one local caller holds it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) lease: Lease,
    pub(super) origin: HoldOrigin,
    /// When this holder got it.
    pub(super) began: Stamp,
    /// Whether a caller got the guard, and does not try again, or has done its work: before, no job
    /// was done under the hold.
    leaves_rest: AtomicBool,
    /// Whether an event has reported that a caller holds it.
    is_reported: AtomicBool,
    /// Its place in the book of holds.
    pub(super) id: OnceLock<HoldId>,
    turn: Mutex<Option<Turn>>,
    pub(super) detached: DetachedWork,
    /// Made when a handler attaches something.
    attachments: OnceLock<Arc<Attachments>>,
    pub(super) progress: EndProgress,
    /// `lock.hold`; `None` where nobody listens, and after the end.
    span: Mutex<Option<Box<Span>>>,
}

/// A hold that was handed off to a caller that has not come for it. Dropped, it is ended.
pub(super) struct Unclaimed(Option<(Arc<Hold>, EndHold)>);

type EndHold = Box<dyn FnOnce(Arc<Hold>) + Send>;

/// Where a hold comes from.
#[derive(Clone, Debug)]
pub(super) struct HoldOrigin {
    pub(super) grant: Grant,
    /// When the store was asked, by the first holder of a row of handoffs, or when its message had
    /// granted.
    pub(super) granted_at: Stamp,
    /// How many local callers held the grant before.
    pub(super) handoffs: u32,
    pub(super) times: HoldTimes,
    /// Whether the next local caller may get the same grant.
    pub(super) allows_handoff: bool,
    /// An earlier request of the same claim was not answered.
    pub(super) was_in_doubt: bool,
}

/// How far the end of a hold has come, so that a second caller continues where the first stopped.
#[derive(Debug, Default)]
pub(super) struct EndProgress {
    /// The handlers have been called, or are being called: a second caller does not call them
    /// again.
    handlers_called: AtomicBool,
    loss_reported: AtomicBool,
    /// The store has confirmed a release with a rest.
    rest_confirmed: AtomicBool,
    /// Made when the end begins: most holds have none.
    results: OnceLock<Box<EndResults>>,
}

/// What came of the end of a hold, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct EndResults {
    /// The result of the release or handoff. It is done once: after a handoff the grant is the next
    /// holder's.
    pub(super) finished: OnceLock<Released>,
    /// The result of the whole end. Whoever ends the hold has the mutex.
    pub(super) ended: tokio::sync::Mutex<Option<Released>>,
}

impl Hold {
    /// A hold without a turn gets that of the hold before it.
    pub(super) fn new(
        lease: Lease,
        origin: HoldOrigin,
        began: Stamp,
        turn: Option<Turn>,
    ) -> Arc<Self> {
        Arc::new(Self {
            lease,
            origin,
            began,
            leaves_rest: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            id: OnceLock::new(),
            turn: Mutex::new(turn),
            detached: DetachedWork::default(),
            attachments: OnceLock::new(),
            progress: EndProgress::default(),
            span: Mutex::default(),
        })
    }

    /// What it is held for.
    pub(super) fn purpose(&self) -> Option<&str> {
        self.origin.grant.claim.label.purpose()
    }

    /// Begins the span `lock.hold`, in the span of the caller.
    pub(super) fn begin_span(&self) {
        let span = tracing::info_span!(
            target: "leasehold::manager",
            "lock.hold",
            key = %self.lease.key(),
            token = %self.lease.token(),
            purpose = self.purpose(),
            outcome = Empty,
        );
        if !span.is_disabled() {
            *self.span.lock() = Some(Box::new(span));
        }
    }

    /// The same hold under a new lease cell goes on with the span of the old one.
    pub(super) fn take_span(&self, before: &Self) {
        let span = before.span.lock().take();
        *self.span.lock() = span;
    }

    /// Ends the span. The next call finds none.
    pub(super) fn end_span(&self, outcome: impl FnOnce() -> Ended) {
        let span = self.span.lock().take();
        if let Some(span) = span {
            span.record("outcome", outcome().word());
        }
    }

    pub(super) fn set_reported(&self, is_reported: bool) {
        self.is_reported.store(is_reported, Ordering::SeqCst);
    }

    pub(super) fn is_reported(&self) -> bool {
        self.is_reported.load(Ordering::SeqCst)
    }

    pub(super) fn leave_rest(&self) {
        self.leaves_rest.store(true, Ordering::SeqCst);
    }

    /// A caller got the guard: that is enough for a rest that counts from the grant.
    pub(super) fn guard_is_out(&self) {
        if let Some(Rest::SinceGrant(_)) = self.origin.times.rest {
            self.leave_rest();
        }
    }

    /// How long the key rests after a release now: not at all if the lease was lost or no job was
    /// done. It counts from when we knew of the grant, which the store made earlier.
    pub(super) fn rest(&self, clock: &Clock) -> Duration {
        let was_live = self.lease.lost_reason().is_some_and(|why| !why.is_loss());
        let leaves_rest = was_live && self.leaves_rest.load(Ordering::SeqCst);
        match self.origin.times.rest.filter(|_| leaves_rest) {
            None => Duration::ZERO,
            Some(Rest::AfterWork(span)) => span,
            Some(Rest::SinceGrant(most)) => most.saturating_sub(clock.stamp().since(&self.began)),
        }
    }

    pub(super) fn attachments(&self) -> &Arc<Attachments> {
        self.attachments.get_or_init(Arc::default)
    }

    /// Its end has begun, and nothing that needs the lease is in progress under it.
    pub(super) fn only_has_to_end(&self) -> bool {
        self.lease.is_closed()
            && self.lease.is_drained()
            && self.detached.done().now_or_never().is_some()
    }

    pub(super) fn take_turn(&self) -> Option<Turn> {
        self.turn.lock().take()
    }

    /// The turn of `before` is this hold's from now on.
    pub(super) fn get_turn_of(&self, before: &Self) {
        let turn = before.take_turn();
        *self.turn.lock() = turn;
    }

    /// What `ask` returns for its turn, if it has it still.
    pub(super) fn of_turn<T>(&self, ask: impl FnOnce(&Turn) -> T) -> Option<T> {
        self.turn.lock().as_ref().map(ask)
    }
}

impl Unclaimed {
    pub(super) fn new(hold: Arc<Hold>, end: impl FnOnce(Arc<Hold>) + Send + 'static) -> Self {
        Self(Some((hold, Box::new(end))))
    }

    pub(super) fn hold(&self) -> Option<&Arc<Hold>> {
        self.0.as_ref().map(|(hold, _)| hold)
    }

    /// Its caller has it now.
    pub(super) fn take(mut self) -> Option<Arc<Hold>> {
        self.0.take().map(|(hold, _)| hold)
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some((hold, end)) = self.0.take() {
            end(hold);
        }
    }
}

impl fmt::Debug for Unclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unclaimed").field(&self.hold()).finish()
    }
}

impl EndProgress {
    pub(super) fn results(&self) -> &EndResults {
        self.results.get_or_init(Box::default)
    }

    /// True for the first caller.
    pub(super) fn begin_handlers(&self) -> bool {
        !self.handlers_called.swap(true, Ordering::SeqCst)
    }

    pub(super) fn confirm_rest(&self) {
        self.rest_confirmed.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_rest(&self) -> bool {
        self.rest_confirmed.load(Ordering::SeqCst)
    }

    /// True for the first caller.
    pub(super) fn begin_loss_report(&self) -> bool {
        !self.loss_reported.swap(true, Ordering::Relaxed)
    }
}
