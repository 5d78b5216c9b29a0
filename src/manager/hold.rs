//! [`Hold`]: the span from a grant to its one end, and that end (I5).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::acquire::Spans;
use super::aside::Aside;
use super::engine::HoldId;
use super::guard::LockGuard;
use super::queue::{Next, Turn};
use super::shared::Shared;
use super::task::Msg;
use crate::clock::Stamp;
use crate::handler::{Around, Attachments, EndReason, Event, ReleaseRequest};
use crate::lease::Lease;
use crate::model::error::LostReason;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, Intent, RunSink};
use crate::store::{Grant, Released};

/// One grant, from the moment it is ours to its one end.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) shared: Arc<Shared>,
    pub(super) lease: Lease,
    pub(super) from: Origin,
    pub(super) id: OnceLock<HoldId>,
    pub(super) turn: Mutex<Option<Turn>>,
    aside: Aside,
    /// Made when handlers tie something to it.
    attachments: OnceLock<Arc<Attachments>>,
    /// When this holder came to it.
    pub(super) began: Stamp,
    /// The handlers have been put around its end, or are just now: an end that goes on after its caller went away asks them no more.
    is_passed: AtomicBool,
    is_lost_told: AtomicBool,
    /// What letting go came to, once it has. An end that goes on does not let go again: after a handoff the grant is the next
    /// holder's.
    let_go: OnceLock<Released>,
    /// How it ended, once it has. Whoever ends it holds the mutex; one that is dropped half way leaves the rest to the
    /// next: letting go is done once, and every other step may be done again.
    pub(super) ended: tokio::sync::Mutex<Option<Released>>,
}

/// What a hold came of.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) grant: Grant,
    /// When the store was asked, at the first of a row of holds that were handed on.
    pub(super) granted_at: Stamp,
    pub(super) handoffs: u32,
    pub(super) spans: Spans,
    /// An asking of this claim before the one that was granted had no answer.
    pub(super) was_in_doubt: bool,
}

/// Who ends a hold, and whether the end is clean enough to hand the hold on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// An explicit release, or a one-shot run that is over.
    Clean,
    /// A dropped guard: always released for real.
    Dropped,
    /// The lease was lost.
    Lost,
    /// The manager is shut down.
    Closed,
}

impl Hold {
    pub(super) fn new(shared: Arc<Shared>, lease: Lease, from: Origin, turn: Turn) -> Arc<Self> {
        Arc::new(Self {
            began: shared.clock.stamp(),
            shared,
            lease,
            from,
            id: OnceLock::new(),
            turn: Mutex::new(Some(turn)),
            aside: Aside::default(),
            attachments: OnceLock::new(),
            is_passed: AtomicBool::new(false),
            is_lost_told: AtomicBool::new(false),
            let_go: OnceLock::new(),
            ended: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn attachments(&self) -> &Arc<Attachments> {
        self.attachments.get_or_init(Arc::default)
    }

    /// The next local caller may ask the store.
    pub(super) fn pass_turn(&self) {
        drop(self.turn.lock().take());
    }

    /// Ends the hold: close, drain, compensate, lost, release or hand on. Runs once; a later caller gets the same answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a later call goes on from the first step that is not done.
    pub(super) async fn end(self: &Arc<Self>, how: End) -> Released {
        let mut ended = self.ended.lock().await;
        if let Some(released) = &*ended {
            return released.clone();
        }
        let released = self.run_end(how).await;
        self.shared.forget(self);
        self.pass_turn();
        match how {
            End::Clean => self.attachments().end(),
            End::Dropped | End::Lost | End::Closed => {
                self.attachments().end_aside(&self.shared.handle);
            }
        }
        *ended = Some(released.clone());
        released
    }

    async fn run_end(self: &Arc<Self>, how: End) -> Released {
        self.lease.close();
        let is_drained = self.drained().await && self.compensated().await;
        let shared = &self.shared;
        if shared.chain.is_empty() && shared.observers.is_empty() {
            return self.let_go(how, is_drained).await;
        }
        let request = self.release_request(how);
        if let EndReason::Lost(reason) = request.road {
            self.tell_lost(reason);
        }
        let released = if shared.chain.is_empty() || self.is_passed.swap(true, Ordering::SeqCst) {
            self.let_go(how, is_drained).await
        } else {
            let around = Around {
                clock: &shared.clock,
                limit: shared.settings.request_timeout,
                aside: (how != End::Clean).then_some(&shared.handle),
            };
            let step = self.let_go(how, is_drained);
            shared.chain.release(request.clone(), around, step).await
        };
        shared.observers.tell(&Event::Release {
            key: &request.key,
            label: &request.label,
            token: request.token,
            road: request.road,
            released: &released,
            held_for: request.held_for,
        });
        released
    }

    fn release_request(&self, how: End) -> ReleaseRequest {
        let claim = &self.from.grant.claim;
        ReleaseRequest {
            key: claim.key.clone(),
            label: claim.label.clone(),
            token: self.lease.token(),
            road: match (self.lease.lost_reason(), how) {
                (Some(LostReason::Released) | None, End::Clean) => EndReason::Released,
                (Some(LostReason::Released) | None, End::Dropped) => EndReason::Dropped,
                (Some(LostReason::Closed), _) | (_, End::Closed) => EndReason::Closed,
                (Some(reason), _) => EndReason::Lost(reason),
                (None, End::Lost) => EndReason::Lost(LostReason::Lapsed),
            },
            held_for: self.shared.clock.stamp().since(&self.began),
        }
    }

    /// Told once, by whoever learns of it first.
    pub(super) fn tell_lost(&self, reason: LostReason) {
        let observers = &self.shared.observers;
        if observers.is_empty() || self.is_lost_told.swap(true, Ordering::Relaxed) {
            return;
        }
        observers.tell(&Event::Lost {
            key: &self.from.grant.claim.key,
            label: &self.from.grant.claim.label,
            token: self.lease.token(),
            reason,
        });
    }

    /// The step that the handlers stand around, taken once.
    async fn let_go(self: &Arc<Self>, how: End, is_drained: bool) -> Released {
        if let Some(released) = self.let_go.get() {
            return released.clone();
        }
        // Noted before anything else is awaited: a caller who goes away in between leaves no step to be taken twice.
        let released = self.leave(how, is_drained).await;
        self.let_go.get_or_init(|| released).clone()
    }

    /// Released, handed on, or left to its TTL.
    async fn leave(self: &Arc<Self>, how: End, is_drained: bool) -> Released {
        if !is_drained || self.lease.is_in_doubt() {
            // A run that is still under way, or an effect that may land late, has one TTL for it.
            self.lease.revoke(reason(how));
            return Released::Withheld;
        }
        if how == End::Clean && self.handoff() {
            return Released::Released;
        }
        // One that is over by its deadline is found so here, and keeps that reason.
        let _ = self.lease.remaining();
        self.lease.revoke(reason(how));
        let was_live = match self.lease.lost_reason() {
            // In a fork the lock is the parent's: to release it here would take it from the parent.
            Some(LostReason::Forked) => return Released::AlreadyGone,
            Some(LostReason::Gone) => {
                self.withdraw_stray();
                return Released::AlreadyGone;
            }
            Some(LostReason::Released | LostReason::Closed) => true,
            _ => false,
        };
        if !was_live && !self.from.spans.lock_delay.is_zero() {
            // What was sent before the lapse has the lock delay to land.
            return Released::Withheld;
        }
        let released = self.shared.release_once(&self.from.grant).await;
        if let Released::Unknown(_) = &released {
            self.shared.send(Msg::Release(self.from.grant.clone()));
        }
        self.withdraw_stray();
        released
    }

    /// An asking that had no answer may be executed after the release, and would then hold for nobody.
    fn withdraw_stray(&self) {
        if self.from.was_in_doubt {
            self.shared
                .send(Msg::Withdraw(self.from.grant.claim.clone()));
        }
    }

    /// Something under it and other holds was left undone: it is not handed on.
    pub(super) fn owes(&self) {
        self.aside.owes();
    }

    /// Waits until no run is in progress, or the lease is over. True if none is.
    pub(super) async fn drained(&self) -> bool {
        loop {
            let left = self.lease.remaining();
            // Polled before the time is looked at, so that a lease which is over drains too if nothing runs.
            if self
                .shared
                .clock
                .timeout(left, self.lease.drained())
                .await
                .is_some()
            {
                return true;
            }
            if self.lease.remaining().is_zero() {
                return false;
            }
        }
    }

    /// Waits until every compensation has ended. True if all have.
    pub(super) async fn compensated(&self) -> bool {
        let limit = self.shared.settings.max_ttl;
        self.shared
            .clock
            .timeout(limit, self.aside.at_rest())
            .await
            .is_some()
    }

    /// Whether this process has had the grant as often and for as long as it may, so that others get their turn.
    fn is_used_up(&self) -> bool {
        let settings = &self.shared.settings;
        let held_for = self.shared.clock.stamp().since(&self.from.granted_at);
        self.from.handoffs >= settings.handoff_count || held_for >= settings.handoff_time
    }

    /// Gives the same grant to the next local caller, under a new lease cell and with the same token: the drain has ordered
    /// the holders of one process. False if it is to be released.
    fn handoff(self: &Arc<Self>) -> bool {
        if !self.turn.lock().as_ref().is_some_and(Turn::is_queued) {
            return false;
        }
        let settings = &self.shared.settings;
        if self.is_used_up() {
            if let Some(turn) = &mut *self.turn.lock()
                && settings.handoff_count > 0
            {
                turn.give_way();
            }
            return false;
        }
        if self.aside.has_debts() || self.lease.ensure(settings.min_usable).is_err() {
            return false;
        }
        let key = &self.from.grant.claim.key;
        let Some(waiter) = self.shared.queues.next(key) else {
            return false;
        };
        // The turn is taken last, so that a caller who is put back finds the queue, and its place at the head of it.
        let fits = waiter.takes_over && waiter.spans == self.from.spans;
        let lease = fits.then(|| self.lease.handoff()).flatten();
        let turn = lease.and_then(|lease| Some((lease, self.turn.lock().take()?)));
        let Some((lease, turn)) = turn else {
            self.shared.queues.put_back(key, waiter);
            return false;
        };
        let from = Origin {
            handoffs: self.from.handoffs + 1,
            ..self.from.clone()
        };
        let next = Self::new(Arc::clone(&self.shared), lease, from, turn);
        if self.shared.go_on(self, &next).is_err() {
            // Shut down in between, or over: this lease has ended, and what is left is the release. The caller asks then.
            *self.turn.lock() = next.turn.lock().take();
            self.shared.queues.put_back(key, waiter);
            return false;
        }
        waiter.give(Next::Guard(Box::new(LockGuard::new(next))));
        true
    }
}

fn reason(how: End) -> LostReason {
    match how {
        End::Clean | End::Dropped => LostReason::Released,
        End::Lost => LostReason::Lapsed,
        End::Closed => LostReason::Closed,
    }
}

impl RunSink for Hold {
    fn intent(&self, intent: &Intent) {
        let Intent {
            key,
            token,
            txn_id,
            intent,
        } = intent;
        tracing::trace!(%key, %token, %txn_id, %intent, "an effect is about to be sent");
    }

    fn debt(&self, debt: Debt) {
        self.aside.debt(&debt);
        self.shared.observers.tell(&Event::Debt { debt: &debt });
    }

    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>) {
        let observers = self.shared.observers.clone();
        let work = work.inspect(move |debts| {
            for debt in debts {
                observers.tell(&Event::Debt { debt });
            }
        });
        self.aside.run(&self.shared.handle, Box::pin(work));
    }

    fn is_watched(&self) -> bool {
        !self.shared.observers.is_empty()
    }

    fn ran(&self, event: RunEvent) {
        self.shared.observers.tell(&Event::Run {
            key: &self.from.grant.claim.key,
            token: self.from.grant.token,
            event,
        });
    }
}
