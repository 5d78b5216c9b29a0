//! [`Unwinding`]: taking back where it can be awaited, and where it cannot.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::handle::Shared;
use super::mode::Awaiting;
use super::notes::ToUndo;
use super::tally::{Compensated, Tally, commit_debt};
use super::undo::{Item, Verdict, Why, judge};
use super::watch::undone;
use crate::lease::Lease;
use crate::model::run_sink::{Debt, DebtState, RunSink};
use crate::model::txn::TxnId;

/// What is left to take back of an awaited run.
///
/// Awaited, it goes newest first. Dropped before its end, it runs every local hook at once, and hands the compensations on to
/// the outbox, the one that was under way included. So a run whose future is dropped needs nothing but its drop.
pub(super) struct Unwinding {
    left: Vec<ToUndo<'static, Awaiting>>,
    under_way: Option<UnderWay>,
    why: Why,
    tally: Tally,
    /// Where to leave what is left; none if it was left there already.
    outbox: Option<Arc<dyn RunSink>>,
    /// Who watches, as long as there is something to tell.
    watcher: Option<Arc<dyn RunSink>>,
    /// A commit call is under way: if this is dropped now, the commit is in doubt.
    committing: Option<TxnId>,
}

struct UnderWay {
    item: Item,
    end: BoxFuture<'static, Compensated>,
}

impl Unwinding {
    pub(super) fn new(shared: &Shared, left: Vec<ToUndo<'static, Awaiting>>, why: Why) -> Self {
        Self {
            left,
            under_way: None,
            why,
            tally: Tally::new(shared.lease().clone()),
            outbox: Some(Arc::clone(shared.outbox())),
            watcher: shared.is_watched().then(|| Arc::clone(shared.outbox())),
            committing: None,
        }
    }

    /// From now until [`answered`](Self::answered), a drop means that the commit is in doubt (I7).
    pub(super) fn commit_begins(&mut self, txn_id: TxnId) {
        self.why = Why::CommitInDoubt;
        self.committing = Some(txn_id);
    }

    /// The commit call has ended: gives back what was to be taken back.
    pub(super) fn answered(mut self) -> Vec<ToUndo<'static, Awaiting>> {
        self.committing = None;
        std::mem::take(&mut self.left)
    }

    /// Takes everything back, newest first.
    pub(super) async fn all(mut self, why: Why) -> Tally {
        self.why = why;
        self.drive().await;
        self.tell_undone();
        if let Some(outbox) = self.outbox.take() {
            self.tally
                .debts
                .iter()
                .cloned()
                .for_each(|d| outbox.debt(d));
        }
        let lease = self.tally.lease.clone();
        std::mem::replace(&mut self.tally, Tally::new(lease))
    }

    async fn drive(&mut self) {
        loop {
            if let Some(under_way) = &mut self.under_way {
                let how = under_way.end.as_mut().await;
                if let Some(UnderWay { item, .. }) = self.under_way.take() {
                    self.tally.compensated(&item, how);
                }
            }
            match self.left.pop() {
                Some(noted) => self.begin(noted),
                None => return,
            }
        }
    }

    fn begin(&mut self, noted: ToUndo<'static, Awaiting>) {
        let step = match noted {
            ToUndo::Local(hook) => return self.tally.run_hook(hook),
            ToUndo::Step(step) => step,
        };
        let (item, state) = step.split();
        match judge(state, item.is_fenced, self.why, &self.tally.lease) {
            Verdict::Nothing => {}
            Verdict::Owe(state) => self.tally.owe(&item, state),
            Verdict::Compensate(undo, limit) => {
                let given = self.tally.compensation(&item, limit);
                let lease = self.tally.lease.clone();
                let is_fenced = item.is_fenced;
                let end = async move {
                    let undo = AssertUnwindSafe(async move { undo(given).await }).catch_unwind();
                    let undo = while_live(undo, is_fenced, &lease);
                    let not_after = lease.clock().stamp().plus(limit);
                    match lease.clock().until(not_after, undo).await.flatten() {
                        Some(Ok(result)) => Compensated::unless_late(result, is_fenced, &lease),
                        Some(Err(payload)) => Compensated::Panicked(payload),
                        None => Compensated::Failed("it did not end within the lease".into()),
                    }
                };
                let end = Box::pin(end);
                self.under_way = Some(UnderWay { item, end });
            }
        }
    }

    /// Everything that needs no awaiting, now. Answers whether something is left.
    fn finish_what_blocks(&mut self) -> bool {
        let mut to_await = Vec::new();
        while let Some(noted) = self.left.pop() {
            match noted {
                ToUndo::Step(step) if self.why != Why::CommitInDoubt && step.has_happened() => {
                    to_await.push(ToUndo::Step(step));
                }
                noted => self.begin(noted),
            }
        }
        to_await.reverse();
        self.left = to_await;
        !self.left.is_empty() || self.under_way.is_some()
    }

    fn owe_what_is_left(&mut self) {
        if let Some(UnderWay { item, .. }) = self.under_way.take() {
            let error = "its future was dropped".into();
            self.tally.compensated(&item, Compensated::Failed(error));
        }
        while let Some(noted) = self.left.pop() {
            match noted {
                ToUndo::Local(hook) => self.tally.run_hook(hook),
                ToUndo::Step(step) => self.tally.owe(&step.split().0, DebtState::Owed),
            }
        }
    }

    fn tell_undone(&mut self) {
        if let (Some(watcher), Some(event)) = (self.watcher.take(), undone(&self.tally.report)) {
            watcher.ran(event);
        }
    }

    async fn finish(mut self) -> Vec<Debt> {
        self.drive().await;
        self.tell_undone();
        self.tally.log();
        std::mem::take(&mut self.tally.debts)
    }
}

impl Drop for Unwinding {
    fn drop(&mut self) {
        let in_doubt = self
            .committing
            .take()
            .map(|txn_id| commit_debt(&self.tally.lease, txn_id));
        if self.left.is_empty() && self.under_way.is_none() && in_doubt.is_none() {
            return;
        }
        self.tally.debts.extend(in_doubt);
        let is_left = self.finish_what_blocks();
        let Some(outbox) = self.outbox.take() else {
            // Handed on already, and dropped there too: nothing is left but to say so.
            self.owe_what_is_left();
            self.tell_undone();
            self.tally.log();
            return;
        };
        self.tally.log();
        self.tally.debts.drain(..).for_each(|d| outbox.debt(d));
        let watcher = self.watcher.clone();
        self.tell_undone();
        if is_left {
            let rest = Self {
                watcher,
                left: std::mem::take(&mut self.left),
                under_way: self.under_way.take(),
                why: self.why,
                tally: Tally::new(self.tally.lease.clone()),
                outbox: None,
                committing: None,
            };
            outbox.compensate(Box::pin(rest.finish()));
        }
    }
}

/// Polls only while it is sound to go on: a compensation that was handed on, or sat still, may be polled again long after its
/// lease, and what it would send then could hit the next holder.
async fn while_live<F: Future>(undo: F, is_fenced: bool, lease: &Lease) -> Option<F::Output> {
    let mut undo = std::pin::pin!(undo);
    std::future::poll_fn(|cx| {
        if !is_fenced && lease.look_strict().is_err() {
            return Poll::Ready(None);
        }
        undo.as_mut().poll(cx).map(Some)
    })
    .await
}
