//! The callers at the [`Desk`]: those that want the same key wait here, first come, first served,
//! so that at most one of them asks the store.
//!
//! A [`Turn`] is the right to ask the store for a key, and then a part of the hold that the store
//! granted. It ends with the hold, however that ends, and passes to the next caller when it is
//! dropped. A caller that has it and holds nothing shows itself now and then. If it does not,
//! because nobody polls it, the turn passes to the next caller, and the one that comes late
//! bypasses the queue: the store decides between the two.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::desk::{Admission, Called, Desk, ReleasedHold, Waits};
use super::hold::{HoldOrigin, Unclaimed};
use super::lifetime::closed;
use super::wish::{HoldTimes, Wish};
use crate::clock::Clock;
use crate::lease::Lease;
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::settings::Settings;
use crate::store::Claim;

/// What a waiting caller gets.
#[derive(Debug)]
pub(super) enum Passed {
    /// Ask the store.
    Turn(Turn),
    /// The hold itself, handed off.
    Hold(Unclaimed),
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    call: oneshot::Sender<Passed>,
    times: HoldTimes,
    label: Label,
    allows_handoff: bool,
}

impl Waiter {
    /// Whether it may get a hold of this origin: the store goes on to report its label.
    fn fits(&self, origin: &HoldOrigin) -> bool {
        self.allows_handoff && self.times == origin.times && self.label == origin.grant.claim.label
    }

    /// Gives the caller what it waits for. If the caller has gone, that is dropped, and so ends or
    /// passes on.
    pub(super) fn call(self, passed: Passed) {
        drop(self.call.send(passed));
    }
}

impl Waits for Waiter {
    fn has_left(&self) -> bool {
        self.call.is_closed()
    }
}

/// The desk of a manager.
#[derive(Debug)]
pub(super) struct Queues {
    desk: Mutex<Desk<Waiter, Lease>>,
    waiting: Arc<AtomicUsize>,
    max_waiters: usize,
    clock: Clock,
    /// Notified when a turn or a withdrawal has ended.
    ended: Notify,
    /// Wakes the task when a turn may have to pass before its next look.
    wake: Notify,
}

/// One of the `max_waiters` callers that may wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedWaiter(Arc<AtomicUsize>);

/// Where a caller has come to.
#[derive(Debug)]
pub(super) enum Entered {
    Turn(Turn),
    /// In the queue, until it is called or the manager is shut down.
    Queue(oneshot::Receiver<Passed>),
}

impl Queues {
    pub(super) fn new(settings: &Settings, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            desk: Mutex::new(Desk::new(settings)),
            waiting: Arc::default(),
            max_waiters: settings.max_waiters,
            clock,
            ended: Notify::new(),
            wake: Notify::new(),
        })
    }

    /// Takes the turn if it is free, otherwise, if `may_wait`, a place in the queue. A caller that
    /// has to wait here is counted among those that wait, and one that bypasses the queue before it
    /// asks. `now` is by the boot clock.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already; `Closed` if the manager was shut down.
    pub(super) fn enter(
        self: &Arc<Self>,
        wish: &Wish,
        may_wait: bool,
        now: u64,
    ) -> Result<Option<(Entered, Option<CountedWaiter>)>, Error> {
        let bypasses = wish.bypasses_queue();
        let counted = || (may_wait && !wish.is_counted).then(|| self.counted());
        let mut desk = self.desk.lock();
        let counted = match desk.enter(&wish.key, bypasses, now) {
            Admission::Refused => return Err(closed()),
            Admission::Wait if !may_wait => return Ok(None),
            Admission::Wait => counted().transpose()?,
            Admission::Turn(number) => {
                drop(desk);
                let turn = Turn::of(self, &wish.key, number, bypasses);
                let counted = if bypasses {
                    counted().transpose()?
                } else {
                    None
                };
                return Ok(Some((Entered::Turn(turn), counted)));
            }
        };
        let (call, called) = oneshot::channel();
        let waiter = Waiter {
            call,
            times: wish.times,
            label: wish.label.clone(),
            allows_handoff: wish.allows_handoff(),
        };
        desk.wait(&wish.key, waiter);
        self.wake_if_early(&mut desk);
        Ok(Some((Entered::Queue(called), counted)))
    }

    /// A turn that bypasses the queue.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down.
    pub(super) fn bypass(self: &Arc<Self>, key: &Key) -> Result<Turn, Error> {
        match self.desk.lock().enter(key, true, 0) {
            Admission::Turn(number) => Ok(Turn::of(self, key, number, true)),
            Admission::Wait | Admission::Refused => Err(closed()),
        }
    }

    /// Counts a caller among those that wait.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already.
    pub(super) fn counted(&self) -> Result<CountedWaiter, Error> {
        let counted = CountedWaiter(Arc::clone(&self.waiting));
        let most = self.max_waiters;
        if self.waiting.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(counted);
        }
        Err(Error::contended(format!(
            "too many callers wait for locks of this manager: max_waiters={most}; try later, or raise max_waiters"
        )))
    }

    /// Whether callers wait for the key.
    pub(super) fn is_waited_for(&self, key: &Key) -> bool {
        self.desk.lock().is_waited_for(key)
    }

    /// The lease of a former holder of the key in this process that still has runs in progress.
    pub(super) fn former(&self, key: &Key) -> Option<Lease> {
        self.desk.lock().former(key, are_left)
    }

    /// Ends every wait: the callers learn that the manager is closed.
    pub(super) fn close(&self) {
        let waiting = self.desk.lock().close();
        drop(waiting);
    }

    /// Passes every turn whose caller did not show itself in time, if others wait for it.
    pub(super) fn pass_unclaimed(self: &Arc<Self>, now: u64) {
        let called = self.desk.lock().unclaimed(now);
        called.into_iter().for_each(|called| self.give(called));
    }

    /// When to look at the turns again, by the boot clock; `None` if nobody waits for one that may
    /// have to pass.
    pub(super) fn plan(&self) -> Option<u64> {
        self.desk.lock().plan()
    }

    /// Completes when a turn may have to pass before the next look.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Completes when nobody has a turn.
    pub(super) async fn emptied(&self) {
        self.until(Desk::is_idle).await;
    }

    /// Completes when no claim of the key is being withdrawn.
    pub(super) async fn withdrawn(&self, key: &Key) {
        self.until(|desk| !desk.is_withdrawing(key)).await;
    }

    async fn until(&self, is_so: impl Fn(&Desk<Waiter, Lease>) -> bool) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Registered before the look, so that an end in between is not missed.
            ended.as_mut().enable();
            if is_so(&self.desk.lock()) {
                return;
            }
            ended.await;
        }
    }

    fn wake_if_early(&self, desk: &mut Desk<Waiter, Lease>) {
        if desk.take_early() {
            self.wake.notify_one();
        }
    }

    /// Outside of the lock, because a turn that nobody takes is dropped, and so passes on.
    fn give(self: &Arc<Self>, called: Called<Waiter>) {
        let mut turn = Turn::of(self, &called.key, called.turn, false);
        turn.gives_way = called.gives_way;
        called.waiter.call(Passed::Turn(turn));
    }
}

impl Drop for CountedWaiter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether runs are in progress under a lease that is closed.
fn are_left(lease: &Lease) -> bool {
    !lease.is_drained()
}

/// The right to ask the store for a key. Each key of a manager has at most one, besides those that
/// bypass the queue.
#[derive(Debug)]
pub(super) struct Turn {
    queues: Arc<Queues>,
    key: Key,
    number: u64,
    /// Nobody ever waits for it.
    bypasses: bool,
    /// This process had the key for as long as it may: other processes ask first.
    gives_way: bool,
}

impl Turn {
    fn of(queues: &Arc<Queues>, key: &Key, number: u64, bypasses: bool) -> Self {
        Self {
            queues: Arc::clone(queues),
            key: key.clone(),
            number,
            bypasses,
            gives_way: false,
        }
    }

    /// The caller lives: it comes back from the store, which it asks after `pause`, or shows itself
    /// again before.
    pub(super) fn show(&self, pause: Duration) {
        if self.is_shown() {
            let (now, mut desk) = (self.queues.clock.boot(), self.queues.desk.lock());
            desk.shown(&self.key, self.number, pause, now);
        }
    }

    /// Whether others may wait for its caller to show itself.
    pub(super) fn is_shown(&self) -> bool {
        !self.bypasses
    }

    /// The store has granted: a hold has the turn from now on, and ends it. False if runs of a
    /// former holder in this process are left: then the grant has to be given back.
    pub(super) fn granted(&self) -> bool {
        let mut desk = self.queues.desk.lock();
        desk.granted(&self.key, self.number, are_left)
    }

    /// Whether the hold that has this turn, and ends so, goes to the caller that waits first.
    pub(super) fn hands_off(&self, ending: ReleasedHold, origin: &HoldOrigin) -> bool {
        let mut desk = self.queues.desk.lock();
        desk.hands_off(&self.key, self.number, ending, |waiter| waiter.fits(origin))
    }

    /// The caller that waits first, to be handed the hold.
    pub(super) fn next(&self, origin: &HoldOrigin) -> Option<Waiter> {
        let mut desk = self.queues.desk.lock();
        desk.next(&self.key, self.number, |waiter| waiter.fits(origin))
    }

    /// The hold has ended, and runs are in progress under its lease: the turn is dropped when they
    /// have ended.
    pub(super) fn drains(&self, lease: &Lease) {
        let mut desk = self.queues.desk.lock();
        desk.drains(&self.key, self.number, lease.clone());
    }

    /// Whether this caller has to let other processes ask first; true once.
    pub(super) fn take_give_way(&mut self) -> bool {
        std::mem::take(&mut self.gives_way)
    }

    /// How many other turns this process has for the key, if this one bypasses the queue: each
    /// asks, waits or holds.
    pub(super) fn beside(&self) -> usize {
        self.queues.desk.lock().beside(&self.key, self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let queues = &self.queues;
        let now = queues.clock.boot();
        let mut desk = queues.desk.lock();
        let called = desk.ended(&self.key, self.number, now);
        queues.wake_if_early(&mut desk);
        drop(desk);
        match called {
            Some(called) => queues.give(called),
            None => queues.ended.notify_waiters(),
        }
    }
}

/// A claim that is being withdrawn, until this is dropped.
#[derive(Debug)]
pub(super) struct Withdrawal {
    queues: Arc<Queues>,
    pub(super) claim: Claim,
}

impl Withdrawal {
    pub(super) fn begin(queues: &Arc<Queues>, claim: Claim) -> Self {
        queues.desk.lock().withdraws(&claim.key);
        Self {
            queues: Arc::clone(queues),
            claim,
        }
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.queues.desk.lock().withdrawn(&self.claim.key);
        self.queues.ended.notify_waiters();
    }
}
