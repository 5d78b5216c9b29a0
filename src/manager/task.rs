//! The task: carries out what the engine decides. It is the one loop of a manager, on the manager's own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::batch::{Batch, Due};
use super::engine::{Heard, Orders};
use super::hold::{End, Hold};
use super::shared::Shared;
use crate::clock::{Audit, ClockKind, Stamp};
use crate::model::error::LostReason;
use crate::settings::Settings;
use crate::store::{Claim, Grant, Released};

/// What is handed to the task.
#[derive(Debug)]
pub(super) enum Msg {
    /// End a hold whose guard is gone.
    End(Arc<Hold>, End),
    /// Take back an attempt whose fate is unknown.
    Withdraw(Claim),
    /// Repeat a release that was not answered.
    Release(Grant),
    /// End every hold, then the store, then the task.
    Shutdown(Option<oneshot::Sender<()>>),
    /// Answer when there is nothing left to do without time passing or somebody answering.
    #[cfg(feature = "test-util")]
    Settle(oneshot::Sender<()>),
}

pub(super) struct Task {
    shared: Arc<Shared>,
    inbox: mpsc::UnboundedReceiver<Msg>,
    renewals: FuturesUnordered<BoxFuture<'static, Batch>>,
    /// Ends, withdrawals, releases: each bounded in time.
    chores: FuturesUnordered<BoxFuture<'static, ()>>,
    orders: Orders,
    last_audit: Stamp,
    shutdown: Option<Shutdown>,
    #[cfg(feature = "test-util")]
    settling: Vec<oneshot::Sender<()>>,
}

struct Shutdown {
    began: Stamp,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Task {
    pub(super) fn new(shared: Arc<Shared>, inbox: mpsc::UnboundedReceiver<Msg>) -> Self {
        let last_audit = shared.clock.stamp();
        Self {
            shared,
            inbox,
            renewals: FuturesUnordered::new(),
            chores: FuturesUnordered::new(),
            orders: Orders::default(),
            last_audit,
            shutdown: None,
            #[cfg(feature = "test-util")]
            settling: Vec::new(),
        }
    }

    /// Runs until the manager is shut down and everything is ended.
    pub(super) async fn run(mut self) {
        loop {
            self.tick();
            if self.is_done() {
                break;
            }
            let pause = self.plan();
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                biased;
                Some(msg) = self.inbox.recv() => self.take(msg),
                Some(batch) = self.renewals.next() => self.apply(batch),
                Some(()) = self.chores.next() => {}
                () = shared.wake.notified() => {}
                () = shared.clock.sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                () = quiet(), if self.is_settling() => self.settle(),
            }
        }
        self.close().await;
    }

    fn take(&mut self, msg: Msg) {
        match msg {
            Msg::End(hold, how) => self.end(hold, how),
            Msg::Withdraw(claim) => {
                let shared = Arc::clone(&self.shared);
                self.chores
                    .push(Box::pin(async move { withdraw(&shared, claim).await }));
            }
            Msg::Release(grant) => {
                let shared = Arc::clone(&self.shared);
                self.chores
                    .push(Box::pin(async move { release(&shared, grant).await }));
            }
            Msg::Shutdown(done) => self.begin_shutdown(done),
            #[cfg(feature = "test-util")]
            Msg::Settle(done) => self.settling.push(done),
        }
    }

    fn end(&mut self, hold: Arc<Hold>, how: End) {
        self.chores.push(Box::pin(async move {
            let _ = hold.end(how).await;
        }));
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now = self.shared.clock.stamp();
        let orders = &mut self.orders;
        let mut lost = Vec::new();
        let (due, pressed, failing): (Due, Due, Due);
        {
            let mut book = self.shared.book.lock();
            note_timer_lag(&self.shared, book.next_look, now.on(ClockKind::Boot));
            book.engine.tick(now.on(ClockKind::Boot), orders);
            for (id, reason) in orders.lost.drain(..) {
                lost.extend(book.remove(id).map(|hold| (hold, reason)));
            }
            due = book.take_along(orders.renew.drain(..));
            pressed = book.take_along(orders.pressed.holds.drain(..));
            failing = book.take_along(orders.failing.holds.drain(..));
        }
        let limits = [
            self.shared.settings.request_timeout,
            orders.pressed.limit,
            orders.failing.limit,
        ];
        for (hold, reason) in lost {
            self.lose(hold, reason);
        }
        let calls = [due, pressed, failing];
        if calls.iter().any(|holds| !holds.is_empty()) && self.are_clocks_sound(&now) {
            for (holds, limit) in calls.into_iter().zip(limits) {
                self.renew(holds, limit);
            }
        }
    }

    /// How long nothing is due; `None` if there is no hold.
    fn plan(&mut self) -> Option<Duration> {
        let mut book = self.shared.book.lock();
        let next = book.engine.next_tick();
        book.next_look = next.unwrap_or(u64::MAX);
        let now = self.shared.clock.stamp().on(ClockKind::Boot);
        let renewals = next.map(|next| Duration::from_nanos(next.saturating_sub(now)));
        renewals.into_iter().chain(self.left_of_shutdown()).min()
    }

    /// How much longer a shutdown waits for what others must finish; `None` if there is none.
    fn left_of_shutdown(&self) -> Option<Duration> {
        let Shutdown { began, .. } = self.shutdown.as_ref()?;
        let Settings {
            max_ttl,
            request_timeout,
            ..
        } = self.shared.settings;
        let waited = self.shared.clock.stamp().since(began);
        Some((max_ttl + request_timeout).saturating_sub(waited))
    }

    /// Compares the clocks since the last heartbeat. If they cannot be trusted, every lease is lost.
    fn are_clocks_sound(&mut self, now: &Stamp) -> bool {
        let earlier = std::mem::replace(&mut self.last_audit, *now);
        match Audit::between(&earlier, now, self.shared.settings.server_drift_ppm) {
            Audit::Sound => true,
            Audit::DistrustFast => {
                self.shared.clock.distrust_fast();
                true
            }
            Audit::Fault => {
                tracing::error!(
                    "a clock went backwards or the clocks disagree; every lease is lost"
                );
                let holds: Vec<_> = self.shared.book.lock().holds().cloned().collect();
                for hold in holds {
                    self.shared.forget(&hold);
                    self.lose(hold, LostReason::ClockFault);
                }
                false
            }
        }
    }

    fn renew(&mut self, holds: Due, limit: Duration) {
        if !holds.is_empty() {
            let asking = Batch::ask(Arc::clone(&self.shared), holds, limit);
            self.renewals.push(Box::pin(asking));
        }
    }

    /// First the leases, which decide, and then the book, under one lock for all: callers wait for it.
    fn apply(&mut self, batch: Batch) {
        if !self.shared.observers.is_empty() {
            self.shared.observers.tell(&batch.event());
        }
        let now = self.shared.clock.stamp();
        let (holds, renewed) = batch.move_leases(self.shared.settings.terms(), &now);

        let mut turned = Vec::new();
        let mut lost = Vec::new();
        {
            let mut book = self.shared.book.lock();
            for ((id, hold), renewed) in holds.iter().zip(renewed) {
                match renewed {
                    Ok(answer) => {
                        let heard = book.engine.answered(*id, answer, now.on(ClockKind::Boot));
                        turned.extend(heard.and_then(Heard::turned).map(|is| (hold, is)));
                    }
                    // A hold that has left meanwhile was ended by us: what the store says of it now is of no account.
                    Err(reason) => {
                        book.engine.forget(*id);
                        lost.extend(book.remove(*id).map(|hold| (hold, reason)));
                    }
                }
            }
        }
        for (hold, is_failing) in turned {
            hold.lease.set_at_risk(is_failing);
        }
        for (hold, reason) in lost {
            self.lose(hold, reason);
        }
    }

    /// A hold that has left the book because its lease is gone: told at once, then ended in order.
    fn lose(&mut self, hold: Arc<Hold>, reason: LostReason) {
        hold.lease.revoke(reason);
        let reason = hold.lease.lost_reason().unwrap_or(reason);
        if reason != LostReason::Released {
            tracing::warn!(key = %hold.lease.key(), token = %hold.lease.token(), "the lease is lost: {reason}");
            hold.tell_lost(reason);
        }
        hold.pass_turn();
        self.end(hold, End::Lost);
    }

    fn begin_shutdown(&mut self, done: Option<oneshot::Sender<()>>) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.waiting.extend(done);
            return;
        }
        let began = self.shared.clock.stamp();
        self.shutdown = Some(Shutdown {
            began,
            waiting: done.into_iter().collect(),
        });
        let holds: Vec<_> = {
            let mut book = self.shared.book.lock();
            book.is_closed = true;
            book.holds().cloned().collect()
        };
        self.shared.closing.cancel();
        self.shared.queues.close();
        let shared = Arc::clone(&self.shared);
        self.chores.push(Box::pin(async move {
            // Callers who are asking the store now withdraw what they asked. One that is never polled again does not.
            let limit = shared.settings.request_timeout;
            shared.clock.timeout(limit, shared.queues.emptied()).await;
        }));
        for hold in holds {
            // Renewed no more, so that a run which never ends holds the shutdown up for one TTL at most.
            self.shared.forget(&hold);
            self.end(hold, End::Closed);
        }
    }

    /// Everything is ended; or the longest lease is over, and somebody does not let go of what only he can end.
    fn is_done(&self) -> bool {
        let Some(left) = self.left_of_shutdown() else {
            return false;
        };
        let is_idle = self.chores.is_empty() && self.renewals.is_empty() && self.inbox.is_empty();
        is_idle || left.is_zero()
    }

    async fn close(self) {
        let limit = self.shared.settings.request_timeout;
        match self
            .shared
            .clock
            .timeout(limit, self.shared.store.close())
            .await
        {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::warn!(%error, "the store could not be closed in order"),
            None => tracing::warn!("the store did not close within {limit:?}"),
        }
        for done in self
            .shutdown
            .into_iter()
            .flat_map(|shutdown| shutdown.waiting)
        {
            let _ = done.send(());
        }
    }

    #[cfg(feature = "test-util")]
    fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    #[cfg(not(feature = "test-util"))]
    fn is_settling(&self) -> bool {
        false
    }

    fn settle(&mut self) {
        #[cfg(feature = "test-util")]
        for done in self.settling.drain(..) {
            let _ = done.send(());
        }
    }
}

/// Completes after nothing else could go on for many polls in a row.
async fn quiet() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// A task that comes late to its own timer would renew late too: worth a word before a lease is lost by it.
fn note_timer_lag(shared: &Shared, planned: u64, now: u64) {
    if planned == u64::MAX {
        return;
    }
    let late = now.saturating_sub(planned);
    shared.timer_lag.last.store(late, Ordering::Relaxed);
    let worst = shared.timer_lag.worst.fetch_max(late, Ordering::Relaxed);
    if late > worst && Duration::from_nanos(late) > shared.settings.request_timeout {
        let late = Duration::from_nanos(late);
        tracing::warn!(
            ?late,
            "the lock manager's thread is starved: heartbeats are sent late"
        );
    }
}

/// A store that does not answer is asked ever more rarely, down to once in a request's time-out.
fn longer(shared: &Shared, pause: Duration) -> Duration {
    let most = shared.settings.request_timeout;
    (2 * pause).min(most).max(shared.spin())
}

/// Withdraws until it is sure, or a TTL has passed.
async fn withdraw(shared: &Shared, claim: Claim) {
    let started = shared.clock.stamp();
    let limit = shared.settings.request_timeout;
    let mut pause = shared.spin();
    while shared.clock.stamp().since(&started) < claim.ttl {
        if let Some(Ok(())) = shared
            .clock
            .timeout(limit, shared.store.withdraw(&claim))
            .await
        {
            return;
        }
        shared.clock.sleep(pause).await;
        pause = longer(shared, pause);
    }
    tracing::warn!(key = %claim.key, "an attempt could not be withdrawn within its ttl; should the store execute it yet, it is over after another ttl");
}

/// Releases until it is confirmed, or the TTL has done it.
async fn release(shared: &Shared, grant: Grant) {
    let started = shared.clock.stamp();
    let mut pause = shared.spin();
    while shared.clock.stamp().since(&started) < grant.proof.ttl {
        shared.clock.sleep(pause).await;
        pause = longer(shared, pause);
        if !matches!(shared.release_once(&grant).await, Released::Unknown(_)) {
            return;
        }
    }
    tracing::warn!(key = %grant.claim.key, "a release was never confirmed; its ttl has ended the hold");
}
