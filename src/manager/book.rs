//! [`HoldBook`]: every hold of a manager, and when each is due. Callers add and remove holds; the
//! task does what is due.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::engine::{Engine, HoldId, Proven};
use super::hold::Hold;
use super::lifetime::closed;
use super::timer_lag::TimerLag;
use crate::clock::{ClockKind, Stamp};
use crate::lease::Terms;
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::key::Key;
use crate::model::span::nanos;

#[derive(Debug)]
pub(super) struct HoldBook {
    pages: Mutex<Pages>,
    /// Wakes the task when a hold is due before its next look.
    wake: Notify,
    pub(super) timer_lag: TimerLag,
}

/// The book's contents, under its lock.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) engine: Engine,
    holds: Vec<Option<Arc<Hold>>>,
    /// When the task looks next, in nanoseconds of the boot clock.
    pub(super) next_look: u64,
    /// When the clocks were compared last, or the first hold was granted.
    audited_at: Stamp,
    is_closed: bool,
}

impl HoldBook {
    pub(super) fn new(engine: Engine, now: Stamp) -> Self {
        Self {
            pages: Mutex::new(Pages {
                engine,
                holds: Vec::new(),
                next_look: u64::MAX,
                audited_at: now,
                is_closed: false,
            }),
            wake: Notify::new(),
            timer_lag: TimerLag::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock()
    }

    /// Completes when a hold is due earlier than the task knows.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Puts a new hold under renewal.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down.
    pub(super) fn adopt(&self, hold: &Arc<Hold>, terms: Terms) -> Result<(), Error> {
        let origin = &hold.origin;
        // The request paces the first renewal; the deadline counts from the proof's own instant
        // where it has one.
        let proof = &origin.grant.proof;
        let proven_at = proof.sent_at.as_ref().unwrap_or(&origin.granted_at);
        let ttl = origin.times.leased(proof.ttl);
        let usable = nanos(terms.usable(ttl));
        let granted_at = origin.granted_at.on(ClockKind::Boot);
        let proven = Proven {
            sent_at: granted_at,
            ttl,
            deadline: proven_at.on(ClockKind::Boot).saturating_add(usable),
        };
        let mut pages = self.lock();
        if pages.is_closed {
            return Err(closed());
        }
        if pages.engine.len() == 0 {
            // The clocks may do what they like while nothing is held: the machine may sleep.
            pages.audited_at = origin.granted_at;
        }
        let id = pages
            .engine
            .adopt(proven, granted_at, origin.times.max_hold);
        // Its message granted a handover. What its caller needs may be longer than that.
        if proof.ttl < origin.grant.claim.ttl / 2 {
            pages.engine.hurry(id, granted_at);
        }
        self.enter(&mut pages, id, hold);
        Ok(())
    }

    /// Puts `next`, which has the grant of `before`, in the place of `before`, with its turn. What
    /// was proven for the grant counts for `next`. With `claim_within`, `next` has to be
    /// [claimed](Self::claim) in that time.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down; `Lost` if the time of the hold was over.
    pub(super) fn transfer(
        &self,
        before: &Hold,
        next: &Arc<Hold>,
        now: &Stamp,
        claim_within: Option<Duration>,
    ) -> Result<(), Error> {
        let now = now.on(ClockKind::Boot);
        let mut pages = self.lock();
        if pages.is_closed {
            return Err(closed());
        }
        let id = before.id.get();
        let Some(id) = id.and_then(|id| pages.engine.transfer(*id, now, claim_within)) else {
            return Err(Error::new(
                ErrorKind::Lost(Ended::Lapsed),
                format!(
                    "the hold ended before it could be passed on: key={}; ask for the lock again",
                    before.lease.key()
                ),
            ));
        };
        // Answers that came after the old lease ended went to the old lease. Later answers wait for
        // the book.
        next.lease.set_at_risk(pages.engine.is_failing(id));
        next.get_turn_of(before);
        self.enter(&mut pages, id, next);
        Ok(())
    }

    /// A hold ends after `span`, unless its caller has [claimed](Self::claim) it before.
    pub(super) fn expect(&self, hold: &Hold, now: &Stamp, span: Duration) {
        let until = now.on(ClockKind::Boot).saturating_add(nanos(span));
        let mut pages = self.lock();
        if let Some(id) = hold.id.get() {
            pages.engine.expect(*id, until);
        }
        self.wake_if_due(&pages);
    }

    /// The caller of a hold has it. False if it came too late.
    pub(super) fn claim(&self, hold: &Hold) -> bool {
        let (began, max_hold) = (hold.began.on(ClockKind::Boot), hold.origin.times.max_hold);
        let mut pages = self.lock();
        let id = hold.id.get();
        let is_claimed = id.is_some_and(|id| pages.engine.claim(*id, began, max_hold));
        self.wake_if_due(&pages);
        is_claimed
    }

    /// Whether runs are in progress under a hold of the key whose lease is over, and the task is
    /// late and has not noticed it.
    pub(super) fn has_unnoticed_runs(&self, key: &Key, now: &Stamp) -> bool {
        let pages = self.lock();
        let due = pages.engine.next_tick();
        if due.is_none_or(|due| due > now.on(ClockKind::Boot)) {
            return false;
        }
        let mut of_key = pages.holds().filter(|hold| hold.lease.key() == key);
        of_key.any(|hold| {
            let is_over = !hold.lease.is_live();
            if is_over {
                // For the drain: a lease that is over begins no run.
                hold.lease.close();
            }
            is_over && !hold.lease.is_drained()
        })
    }

    fn enter(&self, pages: &mut Pages, id: HoldId, hold: &Arc<Hold>) {
        // A hold enters the book once.
        let _ = hold.id.set(id);
        pages.put(id, Arc::clone(hold));
        self.wake_if_due(pages);
    }

    /// Wakes the task if something is due before its next look.
    fn wake_if_due(&self, pages: &Pages) {
        let due = pages.engine.next_tick();
        if due.is_some_and(|due| due < pages.next_look) {
            self.wake.notify_one();
        }
    }

    /// Stops the renewals of a hold; nothing if it has left.
    pub(super) fn forget(&self, hold: &Hold) {
        let Some(id) = hold.id.get() else { return };
        let mut pages = self.lock();
        pages.engine.forget(*id);
        let removed = pages.remove(*id);
        drop(pages);
        drop(removed);
    }

    /// Takes no hold any more. Gives those that are there.
    pub(super) fn close(&self) -> Vec<Arc<Hold>> {
        let mut pages = self.lock();
        pages.is_closed = true;
        pages.holds().cloned().collect()
    }
}

impl Pages {
    /// The clocks are compared now. Gives when they were compared last.
    pub(super) fn next_audit(&mut self, now: &Stamp) -> Stamp {
        std::mem::replace(&mut self.audited_at, *now)
    }

    /// The holds that the engine names.
    pub(super) fn find(&self, ids: impl Iterator<Item = HoldId>) -> Vec<(HoldId, Arc<Hold>)> {
        ids.filter_map(|id| Some((id, Arc::clone(self.holds.get(id.index())?.as_ref()?))))
            .collect()
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.holds.iter().flatten()
    }

    fn put(&mut self, id: HoldId, hold: Arc<Hold>) {
        if self.holds.len() <= id.index() {
            self.holds.resize_with(id.index() + 1, || None);
        }
        self.holds[id.index()] = Some(hold);
    }

    /// Takes out the hold at a place that the engine has given up.
    pub(super) fn remove(&mut self, id: HoldId) -> Option<Arc<Hold>> {
        let place = self.holds.get_mut(id.index())?;
        place.take_if(|hold| hold.id.get() == Some(&id))
    }
}
