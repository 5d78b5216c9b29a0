//! [`Task`]: carries out what the engine decides. It is the one loop of a manager, on the manager's
//! own thread.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, select};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::batch::{Due, JudgedRenewals, RenewalBatch};
use super::context::ManagerContext;
use super::end::{end_hold, pass_turn, report_lost};
use super::engine::{Heard, Orders};
use super::handoff::end_unclaimed;
use super::hold::Hold;
use super::message::Message;
use super::store_requests::{retry_release, retry_withdraw};
use crate::clock::{Audit, ClockKind, Stamp};
use crate::model::error::Ended;
use crate::settings::Settings;

pub(super) struct Task {
    context: Arc<ManagerContext>,
    inbox: mpsc::UnboundedReceiver<Message>,
    renewals: FuturesUnordered<BoxFuture<'static, RenewalBatch>>,
    /// Ends, withdrawals, releases: each is bounded in time.
    background: FuturesUnordered<BoxFuture<'static, ()>>,
    orders: Orders,
    shutdown: Option<Shutdown>,
    /// Tests that wait until nothing is left to do.
    settling: Vec<oneshot::Sender<()>>,
}

struct Shutdown {
    /// How long it waits for what others must finish: until the last lease is over, and for one
    /// request.
    end: Stamp,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Task {
    pub(super) fn new(
        context: Arc<ManagerContext>,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        Self {
            context,
            inbox,
            renewals: FuturesUnordered::new(),
            background: FuturesUnordered::new(),
            orders: Orders::default(),
            shutdown: None,
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
            let next = self.plan();
            let context = Arc::clone(&self.context);
            tokio::select! {
                biased;
                Some(batch) = self.renewals.next() => self.apply(batch),
                Some(message) = self.inbox.recv() => self.take(message),
                Some(()) = self.background.next() => {}
                () = context.holds.woken() => {}
                () = context.queues.woken() => {}
                () = context.clock.sleep_until(next.unwrap_or_default()), if next.is_some() => {}
                () = quiet(), if !self.settling.is_empty() => {
                    self.settling.drain(..).for_each(answer);
                }
            }
        }
        self.close().await;
    }

    fn take(&mut self, message: Message) {
        let context = Arc::clone(&self.context);
        match message {
            Message::End(hold, cause) => self.end(hold, cause),
            Message::Withdraw(withdrawal) => {
                self.spawn(async move { retry_withdraw(&context, withdrawal).await });
            }
            Message::PassTurn(lease, turn) => self.spawn(async move {
                let drained = pin!(lease.drained());
                let closing = pin!(context.lifetime.closing());
                select(drained, closing).await;
                drop(turn);
            }),
            Message::Release(hold) => {
                self.spawn(async move { retry_release(&context, &hold).await });
            }
            Message::Shutdown(done) => self.begin_shutdown(done),
            #[cfg(feature = "testing")]
            Message::Settle(done) => self.settling.push(done),
        }
    }

    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.push(Box::pin(work));
    }

    fn end(&mut self, hold: Arc<Hold>, cause: Ended) {
        let context = Arc::clone(&self.context);
        self.spawn(async move {
            let _ = end_hold(&context, &hold, cause).await;
        });
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now = self.context.clock.stamp();
        let request_timeout = self.context.settings.request_timeout;
        let orders = &mut self.orders;
        self.context.queues.pass_unclaimed(now.on(ClockKind::Boot));
        let (mut lost, mut unclaimed) = (Vec::new(), Vec::new());
        let (due, urgent, failing): (Due, Due, Due);
        let holds = &self.context.holds;
        let planned;
        {
            let mut pages = holds.lock();
            planned = pages.next_look;
            pages.engine.tick(now.on(ClockKind::Boot), orders);
            for (id, reason) in orders.lost.drain(..) {
                lost.extend(pages.remove(id).map(|hold| (hold, reason)));
            }
            unclaimed.extend((orders.unclaimed.drain(..)).filter_map(|id| pages.remove(id)));
            due = pages.find(orders.renew.drain(..));
            urgent = pages.find(orders.urgent.holds.drain(..));
            failing = pages.find(orders.failing.holds.drain(..));
        }
        // Somebody ends it, or was ending it and is not polled any more: then its ttl ends it.
        let [due, urgent, failing] = [due, urgent, failing].map(|mut holds| {
            holds.retain(|(_, hold)| !hold.only_has_to_end());
            holds
        });
        // It may log, and a subscriber may ask the manager what it holds.
        if planned != u64::MAX {
            let lag = now.on(ClockKind::Boot).saturating_sub(planned);
            let lag = Duration::from_nanos(lag);
            holds.timer_lag.note(lag, request_timeout);
        }
        let limits = [request_timeout, orders.urgent.limit, orders.failing.limit];
        for hold in unclaimed {
            end_unclaimed(&self.context, hold);
        }
        for (hold, reason) in lost {
            self.lose(hold, reason);
        }
        let calls = [due, urgent, failing];
        if calls.iter().any(|holds| !holds.is_empty()) {
            let were_wrong = self.compare_clocks(&now);
            for (mut holds, limit) in calls.into_iter().zip(limits) {
                holds.retain(|(_, hold)| !were_wrong || hold.lease.lost_reason().is_none());
                self.renew(holds, limit);
            }
        }
    }

    /// When the next thing is due by the boot clock; `None` if there is no hold, and nobody waits
    /// for a turn.
    fn plan(&mut self) -> Option<u64> {
        let mut pages = self.context.holds.lock();
        let next = pages.engine.next_tick();
        pages.next_look = next.unwrap_or(u64::MAX);
        drop(pages);
        let shutdown = self.end_of_shutdown().map(|end| end.on(ClockKind::Boot));
        let turns = self.context.queues.plan();
        next.into_iter().chain(shutdown).chain(turns).min()
    }

    /// How long a shutdown waits for what others must finish; `None` if there is none.
    fn end_of_shutdown(&self) -> Option<Stamp> {
        self.shutdown.as_ref().map(|shutdown| shutdown.end)
    }

    /// Compares the clocks since the last heartbeat, or since the first hold was granted. If they
    /// cannot be trusted, every lease is lost that is as old, and the answer is true.
    fn compare_clocks(&mut self, now: &Stamp) -> bool {
        let earlier = self.context.holds.lock().next_audit(now);
        let drift_ppm = self.context.settings.server_drift_ppm;
        match Audit::between(&earlier, now, drift_ppm) {
            Audit::Sound => false,
            Audit::DistrustFast => {
                self.context.clock.distrust_fast();
                false
            }
            Audit::Fault => {
                tracing::error!(
                    target: "leasehold::manager", "a clock went backwards or the clocks disagree; the leases that saw it are lost"
                );
                // Short holds that overlap ask for no heartbeat, so the clocks may have been wrong
                // before a hold was asked for.
                let saw_it = |hold: &&Arc<Hold>| {
                    let since = [&earlier, &hold.origin.granted_at];
                    let since = since.into_iter().max_by_key(|at| at.on(ClockKind::Boot));
                    since.is_none_or(|at| Audit::between(at, now, drift_ppm) == Audit::Fault)
                };
                let holds: Vec<_> =
                    (self.context.holds.lock().holds().filter(saw_it).cloned()).collect();
                for hold in holds {
                    self.context.holds.forget(&hold);
                    self.lose(hold, Ended::ClockFault);
                }
                true
            }
        }
    }

    fn renew(&mut self, holds: Due, limit: Duration) {
        if !holds.is_empty() {
            let asking = RenewalBatch::ask(Arc::clone(&self.context), holds, limit);
            self.renewals.push(Box::pin(asking));
        }
    }

    /// First the leases, which decide, and then the book, under one lock for all holds: callers
    /// wait for it.
    fn apply(&mut self, batch: RenewalBatch) {
        let observers = &self.context.hooks.observers;
        if !observers.is_empty() {
            observers.notify(&batch.event());
        }
        let now = self.context.clock.stamp();
        let JudgedRenewals {
            holds,
            verdicts,
            errors,
        } = batch.move_leases(self.context.settings.terms(), &now);
        let is_proven = verdicts
            .iter()
            .any(|verdict| matches!(verdict, Ok(Some(_))));
        if is_proven {
            self.context.contact.answered(&now);
        } else if !errors.is_empty() {
            self.context.contact.failed();
        }

        let mut turned = Vec::new();
        let mut lost = Vec::new();
        {
            let mut pages = self.context.holds.lock();
            for ((id, hold), verdict) in holds.iter().zip(verdicts) {
                match verdict {
                    Ok(proven) => {
                        let heard = pages.engine.answered(*id, proven, now.on(ClockKind::Boot));
                        turned.extend(heard.and_then(Heard::turned).map(|is| (*id, hold, is)));
                    }
                    // A hold that has left meanwhile was ended by us, so the store's answer does
                    // not matter.
                    Err(reason) => {
                        pages.engine.forget(*id);
                        lost.extend(pages.remove(*id).map(|hold| (hold, reason)));
                    }
                }
            }
        }
        for (_, hold, is_failing) in &turned {
            hold.lease.set_at_risk(*is_failing);
        }
        let failures = &self.context.failures;
        failures.judged(&turned, errors, &now);
        if is_proven {
            failures.answered();
        }
        for (hold, reason) in lost {
            self.lose(hold, reason);
        }
    }

    /// Reports the loss of a hold that has left the book, then ends it in order.
    fn lose(&mut self, hold: Arc<Hold>, reason: Ended) {
        hold.lease.revoke(reason);
        let ended = hold.lease.lost_reason().unwrap_or(reason);
        let now = self.context.clock.stamp();
        (self.context.failures).lost(&hold, ended, &now);
        if ended.is_loss() {
            report_lost(&self.context, &hold, ended);
        }
        hold.lease.close();
        pass_turn(&self.context, &hold);
        self.end(hold, reason);
    }

    fn begin_shutdown(&mut self, done: Option<oneshot::Sender<()>>) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.waiting.extend(done);
            return;
        }
        let began = self.context.clock.stamp();
        let holds = self.context.holds.close();
        let Settings {
            ttl,
            request_timeout,
            ..
        } = self.context.settings;
        // Of a hold that left the book before, the lease is over or its lock was released.
        let remaining = holds.iter().map(|hold| hold.lease.remaining());
        let longest = remaining.fold(ttl, Duration::max);
        self.shutdown = Some(Shutdown {
            end: began.plus(longest + request_timeout),
            waiting: done.into_iter().collect(),
        });
        self.context.lifetime.close();
        self.context.queues.close();
        let context = Arc::clone(&self.context);
        self.spawn(async move {
            // Callers that are asking the store now withdraw their claims. A caller that is never
            // polled again does not.
            let limit = context.settings.request_timeout;
            context.clock.timeout(limit, context.queues.emptied()).await;
        });
        for hold in holds {
            // Not renewed any more, so that a run which never ends delays the shutdown by one TTL
            // at most.
            self.context.holds.forget(&hold);
            self.end(hold, Ended::Closed);
        }
    }

    /// Everything is ended; or the longest lease is over, and a caller still holds something that
    /// only it can end.
    fn is_done(&self) -> bool {
        let Some(end) = self.end_of_shutdown() else {
            return false;
        };
        let is_idle =
            self.background.is_empty() && self.renewals.is_empty() && self.inbox.is_empty();
        is_idle || end.since(&self.context.clock.stamp()).is_zero()
    }

    async fn close(self) {
        let context = &self.context;
        let limit = context.settings.request_timeout;
        match context.clock.timeout(limit, context.store.close()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::warn!(target: "leasehold::manager", %error, "the store could not be closed in order")
            }
            None => {
                tracing::warn!(target: "leasehold::manager", "the store did not close within {limit:?}")
            }
        }
        let waiting = self.shutdown.map(|shutdown| shutdown.waiting);
        waiting.into_iter().flatten().for_each(answer);
    }
}

/// The caller may have gone.
fn answer(done: oneshot::Sender<()>) {
    let _ = done.send(());
}

/// Completes after many polls in a row in which nothing else was ready.
async fn quiet() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
