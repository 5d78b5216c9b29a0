//! [`Hold`]: the span from a grant to its one end, and that end (I5).

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::aside::Aside;
use super::engine::HoldId;
use super::guard::LockGuard;
use super::queue::{Next, Turn};
use super::shared::Shared;
use super::task::Msg;
use crate::clock::Stamp;
use crate::error::LostReason;
use crate::lease::Lease;
use crate::outbox::{Debt, Intent, Outbox};
use crate::store::{Grant, Released};

/// One grant, from the moment it is ours to its one end.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) shared: Arc<Shared>,
    pub(super) lease: Lease,
    pub(super) grant: Grant,
    pub(super) id: OnceLock<HoldId>,
    /// When the store was asked, at the first of a row of holds that were handed on.
    pub(super) granted_at: Stamp,
    pub(super) handed_on: u32,
    turn: Mutex<Option<Turn>>,
    aside: Aside,
    /// How it ended, once it has. Whoever ends it holds the mutex; one that is dropped half way leaves the rest to the
    /// next, since every step of the end may be done again.
    ended: tokio::sync::Mutex<Option<Released>>,
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
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: Lease,
        grant: Grant,
        granted_at: Stamp,
        handed_on: u32,
        turn: Turn,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            lease,
            grant,
            id: OnceLock::new(),
            granted_at,
            handed_on,
            turn: Mutex::new(Some(turn)),
            aside: Aside::default(),
            ended: tokio::sync::Mutex::default(),
        })
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
        *ended = Some(released.clone());
        released
    }

    async fn run_end(self: &Arc<Self>, how: End) -> Released {
        self.lease.close();
        let is_drained = self.drained().await && self.compensated().await;
        if !is_drained || self.lease.is_in_doubt() {
            // A run that is still under way, or an effect that may land late, has one TTL for it.
            self.lease.revoke(reason(how));
            return Released::Withheld;
        }
        if how == End::Clean && self.hand_on() {
            return Released::Released;
        }
        self.lease.revoke(reason(how));
        if matches!(
            self.lease.lost_reason(),
            Some(LostReason::Gone | LostReason::Forked)
        ) {
            // In a fork the lock is the parent's: to release it here would take it from the parent.
            return Released::AlreadyGone;
        }
        let released = self.shared.release_once(&self.grant).await;
        if let Released::Unknown(_) = &released {
            self.shared.send(Msg::Release(self.grant.clone()));
        }
        released
    }

    /// Waits until no run is in progress, or the lease is over. True if none is.
    async fn drained(&self) -> bool {
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
    async fn compensated(&self) -> bool {
        let limit = self.shared.settings.max_ttl;
        self.shared
            .clock
            .timeout(limit, self.aside.at_rest())
            .await
            .is_some()
    }

    /// Gives the same grant to the next local caller, under a new lease cell and with the same token: the drain has ordered
    /// the holders of one process. False if it is to be released.
    fn hand_on(self: &Arc<Self>) -> bool {
        let settings = &self.shared.settings;
        let held_for = self.shared.clock.stamp().since(&self.granted_at);
        let may = self.handed_on < settings.hand_on_count
            && held_for < settings.hand_on_time
            && !self.aside.has_debts()
            && self.lease.ensure(settings.min_usable).is_ok();
        if !may {
            return false;
        }
        let key = &self.grant.claim.key;
        let Some(waiter) = self.shared.queues.next(key) else {
            return false;
        };
        let lease = (waiter.ttl == self.grant.claim.ttl)
            .then(|| self.lease.hand_on())
            .flatten();
        let (Some(lease), Some(turn)) = (lease, self.turn.lock().take()) else {
            self.shared.queues.put_back(key, waiter);
            return false;
        };
        let next = Self::new(
            Arc::clone(&self.shared),
            lease,
            self.grant.clone(),
            self.granted_at,
            self.handed_on + 1,
            turn,
        );
        self.shared.forget(self);
        if self.shared.adopt(&next).is_err() {
            // Shut down in between: this lease has ended, and what is left is the release.
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

impl Outbox for Hold {
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
    }

    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>) {
        self.aside.run(&self.shared.handle, work);
    }
}
