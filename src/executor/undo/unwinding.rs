//! [`Unwinding`]: undoes an awaited run, also when its future is dropped.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::judge::{Item, Why};
use super::tally::{Due, Tally, commit_debt, unless_late};
use crate::executor::context::RunContext;
use crate::executor::inside::{Inside, drive_inside};
use crate::executor::tx::ToUndo;
use crate::executor::while_live::while_live;
use crate::model::caught::{Caught, drop_caught};
use crate::model::commit::CommitPermit;
use crate::model::error::BoxError;
use crate::model::run_sink::{Debt, DebtState, RunSink};

/// What is left to undo of an awaited run.
///
/// Awaited, it undoes newest first. Dropped before its end, it runs every local hook at once, and
/// passes the compensations to the sink, including the one in progress. Therefore a run whose
/// future is dropped is undone by the drop alone.
pub(crate) struct Unwinding {
    left: Vec<ToUndo<'static>>,
    under_way: Option<UnderWay>,
    why: Why,
    tally: Tally,
    /// Where to pass what is left; none if this already comes from there.
    sink: Option<Arc<dyn RunSink>>,
    /// The observers, until they were notified.
    watcher: Option<Arc<dyn RunSink>>,
    /// A commit call is in progress: if this is dropped now, the commit is in doubt, unless its
    /// permit proves that it was not sent.
    committing: Option<CommitPermit>,
}

struct UnderWay {
    item: Item,
    end: BoxFuture<'static, Result<Result<(), BoxError>, Caught>>,
}

impl Unwinding {
    pub(crate) fn new(
        context: &RunContext,
        run: u64,
        left: Vec<ToUndo<'static>>,
        why: Why,
    ) -> Self {
        Self {
            left,
            under_way: None,
            why,
            tally: Tally::new(context.lease().clone(), run),
            sink: Some(Arc::clone(context.sink())),
            watcher: context.is_watched().then(|| Arc::clone(context.sink())),
            committing: None,
        }
    }

    /// From now until [`answered`](Self::answered), a drop means that the commit is in doubt (I7).
    pub(crate) fn commit_begins(&mut self, permit: CommitPermit) {
        self.committing = Some(permit);
    }

    /// The commit call has ended: returns what was to be undone.
    pub(crate) fn answered(mut self) -> Vec<ToUndo<'static>> {
        self.committing = None;
        std::mem::take(&mut self.left)
    }

    /// Undoes everything, newest first.
    pub(crate) async fn undo_all(mut self) -> Tally {
        self.drive().await;
        self.notify_undone();
        if let Some(sink) = self.sink.take() {
            self.tally
                .report
                .debts
                .iter()
                .cloned()
                .for_each(|d| sink.debt(d));
        }
        let empty = self.tally.empty();
        std::mem::replace(&mut self.tally, empty)
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

    fn begin(&mut self, noted: ToUndo<'static>) {
        let Some(due) = self.tally.undo(noted, self.why) else {
            return;
        };
        let Due {
            item,
            undo,
            given,
            limit,
        } = due;
        let lease = self.tally.lease.clone();
        let is_fenced = item.is_fenced;
        let end = async move {
            let undo = AssertUnwindSafe(async move { undo(given).await }).catch_unwind();
            let undo = async {
                if is_fenced {
                    Some(undo.await)
                } else {
                    while_live(&lease, undo).await
                }
            };
            let not_after = lease.clock().stamp().plus(limit);
            match lease.clock().until(not_after, undo).await.flatten() {
                Some(Ok(returned)) => Ok(unless_late(returned, is_fenced, &lease)),
                Some(Err(payload)) => Err(Caught::by(payload)),
                None => Ok(Err("it did not end within the lease".into())),
            }
        };
        let end = Box::pin(end);
        self.under_way = Some(UnderWay { item, end });
    }

    /// Does everything that needs no awaiting, now. Returns whether something is left.
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
        if let Some(UnderWay { item, end }) = self.under_way.take() {
            let _ = drop_caught(end);
            let error = "its future was dropped".into();
            self.tally.compensated(&item, Ok(Err(error)));
        }
        while let Some(noted) = self.left.pop() {
            if let Some(Due { item, undo, .. }) = self.tally.undo(noted, self.why) {
                let _ = drop_caught(undo);
                self.tally.owe(&item, DebtState::Owed);
            }
        }
    }

    fn notify_undone(&mut self) {
        if let (Some(watcher), Some(event)) = (self.watcher.take(), self.tally.report.event()) {
            watcher.ran(&self.tally.lease.held_keys(), self.tally.run, event);
        }
    }

    async fn finish(mut self) -> Vec<Debt> {
        self.drive().await;
        self.notify_undone();
        self.tally.log();
        std::mem::take(&mut self.tally.report.debts)
    }
}

impl Drop for Unwinding {
    fn drop(&mut self) {
        let committing = self.committing.take();
        if committing.as_ref().is_some_and(CommitPermit::end_unsent) {
            self.why = Why::NotCommitted;
        }
        let in_doubt = committing
            .filter(|_| self.why == Why::CommitInDoubt)
            .map(|permit| commit_debt(&self.tally.lease, permit.txn_id));
        if self.left.is_empty() && self.under_way.is_none() && in_doubt.is_none() {
            return;
        }
        self.tally.report.debts.extend(in_doubt);
        // The hooks are a part of the run, which is dropped outside of its polls.
        let _inside = (self.sink.as_ref()).map(|sink| Inside::enter(&sink.lock_numbers()));
        let is_left = self.finish_what_blocks();
        let Some(sink) = self.sink.take() else {
            // The sink had this already, and dropped it too: all that is left is to report it.
            self.owe_what_is_left();
            let watcher = self.watcher.clone();
            self.notify_undone();
            self.tally.log();
            match watcher {
                Some(watcher) => self
                    .tally
                    .report
                    .debts
                    .drain(..)
                    .for_each(|d| watcher.debt(d)),
                None => self.tally.log_debts(),
            }
            return;
        };
        self.tally.log();
        self.tally.report.debts.drain(..).for_each(|d| sink.debt(d));
        let watcher = self.watcher.clone();
        self.notify_undone();
        if is_left {
            let rest = Self {
                watcher,
                left: std::mem::take(&mut self.left),
                under_way: self.under_way.take(),
                why: self.why,
                tally: self.tally.empty(),
                sink: None,
                committing: None,
            };
            let rest = drive_inside(sink.lock_numbers(), rest.finish());
            sink.compensate(Box::pin(rest));
        }
    }
}
