//! The task: carries out what the engine decides. It is the one loop of a manager, on the manager's own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::engine::{Answer, HoldId, Orders};
use super::hold::{End, Hold};
use super::shared::Shared;
use crate::clock::{Audit, Lane, Stamp};
use crate::error::LostReason;
use crate::handler::Event;
use crate::lease::LeaseError;
use crate::settings::Settings;
use crate::store::{Claim, Grant, Released, Renewed};

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

/// One renewal call, answered or given up.
struct Batch {
    ids: Vec<HoldId>,
    sent_at: Stamp,
    round_trip: Duration,
    lateness: Duration,
    /// Empty if no answer came within the limit.
    answers: Vec<Renewed>,
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
        let mut orders = std::mem::take(&mut self.orders);
        let mut lost = Vec::new();
        {
            let mut book = self.shared.book.lock();
            note_lateness(&self.shared, book.next_look, now.on(Lane::Boot));
            book.engine.tick(now.on(Lane::Boot), &mut orders);
            for (id, reason) in orders.lost.drain(..) {
                lost.extend(book.remove(id).map(|hold| (hold, reason)));
            }
        }
        for (hold, reason) in lost {
            self.lose(hold, reason);
        }
        if !(orders.renew.is_empty() && orders.renew_urgently.is_empty()) {
            self.audit(&now);
        }
        self.renew(
            std::mem::take(&mut orders.renew),
            self.shared.settings.request_timeout,
        );
        self.renew(
            std::mem::take(&mut orders.renew_urgently),
            orders.urgent_limit,
        );
        self.orders = orders;
    }

    /// How long nothing is due; `None` if there is no hold.
    fn plan(&mut self) -> Option<Duration> {
        let mut book = self.shared.book.lock();
        let next = book.engine.next_tick();
        book.next_look = next.unwrap_or(u64::MAX);
        let now = self.shared.clock.stamp().on(Lane::Boot);
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

    /// Compares the clocks since the last heartbeat.
    fn audit(&mut self, now: &Stamp) {
        let earlier = std::mem::replace(&mut self.last_audit, *now);
        match Audit::between(&earlier, now, self.shared.settings.server_drift_ppm) {
            Audit::Sound => {}
            Audit::DistrustFast => self.shared.clock.distrust_fast(),
            Audit::Fault => {
                tracing::error!(
                    "a clock went backwards or the clocks disagree; every lease is lost"
                );
                let holds: Vec<_> = self.shared.book.lock().holds().cloned().collect();
                for hold in holds {
                    self.shared.forget(&hold);
                    self.lose(hold, LostReason::ClockFault);
                }
            }
        }
    }

    fn renew(&mut self, mut ids: Vec<HoldId>, limit: Duration) {
        let mut grants = Vec::with_capacity(ids.len());
        {
            let book = self.shared.book.lock();
            ids.retain(|id| {
                let hold = book.hold(*id);
                grants.extend(hold.map(|hold| hold.from.grant.clone()));
                hold.is_some()
            });
        }
        if grants.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let lateness = Duration::from_nanos(shared.lateness.last.load(Ordering::Relaxed));
        self.renewals.push(Box::pin(async move {
            // Before the request leaves (I1).
            let sent_at = shared.clock.stamp();
            let answers = shared
                .clock
                .timeout(limit, shared.store.renew(&grants))
                .await;
            Batch {
                ids,
                sent_at,
                round_trip: shared.clock.stamp().since(&sent_at),
                lateness,
                answers: answers.unwrap_or_default(),
            }
        }));
    }

    fn apply(&mut self, batch: Batch) {
        self.tell_renewed(&batch);
        let now = self.shared.clock.stamp().on(Lane::Boot);
        let mut answers = batch.answers.into_iter();
        for id in batch.ids {
            // A store that answers for fewer grants than it was asked for has proven nothing for the rest.
            let answer = answers.next();
            let hold = self.shared.book.lock().hold(id).cloned();
            // A hold that has left meanwhile was ended by us: what the store says of it now is of no account.
            let Some(hold) = hold else { continue };
            match answer {
                Some(Renewed::Extended(proof)) => {
                    let since = proof.sent_at.unwrap_or(batch.sent_at);
                    let spans = &hold.from.spans;
                    match hold.lease.renew(&since, spans.leased(proof.ttl)) {
                        Ok(()) => {
                            let proven = self.shared.proven(&batch.sent_at, &since, proof, spans);
                            self.answered(&hold, id, Answer::Proven(proven), now);
                        }
                        Err(LeaseError::Lost(reason)) => self.give_up(hold, reason),
                        Err(_) => self.give_up(hold, LostReason::Lapsed),
                    }
                }
                Some(Renewed::Gone) => self.give_up(hold, LostReason::Gone),
                Some(Renewed::Unknown(error)) => {
                    tracing::debug!(key = %hold.lease.key(), %error, "a renewal proved nothing");
                    self.answered(&hold, id, Answer::Unknown, now);
                }
                None => self.answered(&hold, id, Answer::Unknown, now),
            }
        }
    }

    fn tell_renewed(&self, batch: &Batch) {
        if self.shared.observers.is_empty() {
            return;
        }
        let holds = batch.ids.len();
        let count = |is: fn(&Renewed) -> bool| {
            batch
                .answers
                .iter()
                .take(holds)
                .filter(|answer| is(answer))
                .count()
        };
        let extended = count(|answer| matches!(answer, Renewed::Extended(_)));
        let gone = count(|answer| matches!(answer, Renewed::Gone));
        self.shared.observers.tell(&Event::Renew {
            holds,
            extended,
            gone,
            unknown: holds - extended - gone,
            round_trip: batch.round_trip,
            lateness: batch.lateness,
        });
    }

    fn answered(&self, hold: &Hold, id: HoldId, answer: Answer, now: u64) {
        let mut book = self.shared.book.lock();
        let was_failing = book.engine.is_failing(id);
        let goes_well = book.engine.answered(id, answer, now);
        drop(book);
        // The lease is left alone when there is nothing new to say: with many holds, to fetch it is what a round costs.
        if let Some(goes_well) = goes_well
            && goes_well == was_failing
        {
            hold.lease.set_at_risk(!goes_well);
        }
    }

    fn give_up(&mut self, hold: Arc<Hold>, reason: LostReason) {
        self.shared.forget(&hold);
        self.lose(hold, reason);
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
fn note_lateness(shared: &Shared, planned: u64, now: u64) {
    if planned == u64::MAX {
        return;
    }
    let late = now.saturating_sub(planned);
    shared.lateness.last.store(late, Ordering::Relaxed);
    let worst = shared.lateness.worst.fetch_max(late, Ordering::Relaxed);
    if late > worst && Duration::from_nanos(late) > shared.settings.request_timeout {
        let late = Duration::from_nanos(late);
        tracing::warn!(
            ?late,
            "the lock manager's thread is starved: heartbeats are sent late"
        );
    }
}

/// Withdraws until it is sure, or the TTL has done it.
async fn withdraw(shared: &Shared, claim: Claim) {
    let started = shared.clock.stamp();
    let limit = shared.settings.request_timeout;
    while shared.clock.stamp().since(&started) < claim.ttl {
        if let Some(Ok(())) = shared
            .clock
            .timeout(limit, shared.store.withdraw(&claim))
            .await
        {
            return;
        }
        shared.clock.sleep(shared.spin()).await;
    }
    tracing::warn!(key = %claim.key, "an attempt could not be withdrawn; its ttl has ended it");
}

/// Releases until it is confirmed, or the TTL has done it.
async fn release(shared: &Shared, grant: Grant) {
    let started = shared.clock.stamp();
    while shared.clock.stamp().since(&started) < grant.proof.ttl {
        shared.clock.sleep(shared.spin()).await;
        if !matches!(shared.release_once(&grant).await, Released::Unknown(_)) {
            return;
        }
    }
    tracing::warn!(key = %grant.claim.key, "a release was never confirmed; its ttl has ended the hold");
}
