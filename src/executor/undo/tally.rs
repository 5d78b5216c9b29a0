//! [`Tally`]: what was undone so far, and what could not be.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::judge::{Item, Remedy, Why, judge};
use crate::executor::context::RunContext;
use crate::executor::outcome::{UndoReport, UndoResult};
use crate::executor::tx::{Compensation, ToUndo, Undo};
use crate::lease::Lease;
use crate::model::caught::{Caught, caught};
use crate::model::commit::{keys, tokens};
use crate::model::error::BoxError;
use crate::model::run_sink::{Debt, DebtState};
use crate::model::txn::TxnId;

/// What a compensation came to that returned this: success counts only within the lease, or under a
/// fence.
pub(crate) fn unless_late(
    returned: Result<(), BoxError>,
    is_fenced: bool,
    lease: &Lease,
) -> Result<(), BoxError> {
    returned?;
    if is_fenced || lease.look_strict().is_ok() {
        return Ok(());
    }
    Err("it ended after the lease, so it may have collided with the next holder's work".into())
}

/// A compensation that may run, for at most `limit`.
pub(crate) struct Due<'env> {
    pub(crate) item: Item,
    pub(crate) undo: Undo<'env>,
    pub(crate) given: Compensation,
    pub(crate) limit: Duration,
}

/// Undoes everything of a blocking run on this thread, newest first.
pub(crate) fn undo_all(
    context: &RunContext,
    run: u64,
    to_undo: Vec<ToUndo<'_>>,
    why: Why,
) -> Tally {
    let mut tally = Tally::new(context.lease().clone(), run);
    for noted in to_undo.into_iter().rev() {
        if let Some(Due {
            item, undo, given, ..
        }) = tally.undo(noted, why)
        {
            let how = caught(|| undo(given).now_or_never()).map(|returned| {
                let returned = returned.unwrap_or_else(|| Err("it did not end".into()));
                unless_late(returned, item.is_fenced, &tally.lease)
            });
            tally.compensated(&item, how);
        }
    }
    tally.notify(context);
    tally
}

/// What was undone so far, and what could not be.
pub(crate) struct Tally {
    pub(crate) lease: Lease,
    /// The number of the run.
    pub(crate) run: u64,
    pub(crate) report: UndoReport,
}

impl Tally {
    pub(crate) fn new(lease: Lease, run: u64) -> Self {
        Self {
            lease,
            run,
            report: UndoReport::default(),
        }
    }

    /// A new one of the same run.
    pub(crate) fn empty(&self) -> Self {
        Self::new(self.lease.clone(), self.run)
    }

    /// Undoes what was noted, or owes it. An effect that may be compensated is returned.
    pub(crate) fn undo<'env>(&mut self, noted: ToUndo<'env>, why: Why) -> Option<Due<'env>> {
        let step = match noted {
            ToUndo::Local(hook) => {
                self.report.push(None, caught(hook).into());
                return None;
            }
            ToUndo::Step(step) => step,
        };
        let (item, state) = step.split();
        match judge(state, item.is_fenced, why, &self.lease) {
            Remedy::Nothing => {}
            Remedy::Owe(state) => self.owe(&item, state),
            Remedy::Compensate(undo, limit) => {
                let given = self.compensation(&item, limit);
                return Some(Due {
                    item,
                    undo,
                    given,
                    limit,
                });
            }
        }
        None
    }

    pub(crate) fn compensated(&mut self, item: &Item, how: Result<Result<(), BoxError>, Caught>) {
        let result = UndoResult::from(how);
        let error = match &result {
            UndoResult::Failed(error) => Some(Arc::clone(error)),
            // Without its message: a debt is logged.
            UndoResult::Panicked(_) => Some(Arc::new("it panicked".into())),
            UndoResult::Done | UndoResult::NotTried(_) => None,
        };
        if let Some(error) = error {
            self.debt(item, DebtState::Failed(error));
        }
        self.report.push(Some(Arc::clone(&item.intent)), result);
    }

    pub(crate) fn owe(&mut self, item: &Item, state: DebtState) {
        self.debt(item, state.clone());
        self.report
            .push(Some(Arc::clone(&item.intent)), UndoResult::NotTried(state));
    }

    fn debt(&mut self, item: &Item, state: DebtState) {
        // An effect or a compensation that may still land: the next holder must not enter before
        // the TTL is over (I5).
        if matches!(state, DebtState::InDoubt | DebtState::Failed(_)) {
            self.lease.mark_in_doubt();
        }
        self.report
            .debts
            .push(debt(&self.lease, item.txn_id, &item.intent, state));
    }

    fn compensation(&self, item: &Item, remaining: Duration) -> Compensation {
        Compensation {
            token: self.lease.token(),
            txn_id: item.txn_id,
            remaining,
            locks: self.lease.held_keys(),
        }
    }

    /// For a run that has no outcome: it was dropped, or it panicked. A step that was not undone is
    /// a debt, which its receiver logs.
    pub(crate) fn log(&self) {
        let locks = self.lease.held_keys();
        let (key, token) = (keys(&locks), tokens(&locks));
        for undone in self.report.results() {
            if undone.intent.is_none() && !matches!(undone.result, UndoResult::Done) {
                let intent = "a local hook";
                tracing::warn!(target: "leasehold::run", %key, %token, intent, "a local hook did not undo its change: {}", undone.result);
            }
        }
    }

    /// For debts that nobody receives any more.
    pub(crate) fn log_debts(&self) {
        self.report.debts.iter().for_each(Debt::log);
    }

    /// Reports what was undone, and every debt. The outcome contains them as well, if there is one.
    pub(crate) fn notify(&self, context: &RunContext) {
        if let Some(event) = self.report.event() {
            context.notify(self.run, event);
        }
        for debt in &self.report.debts {
            context.sink().debt(debt.clone());
        }
    }
}

pub(crate) fn debt(lease: &Lease, txn_id: TxnId, intent: &Arc<str>, state: DebtState) -> Debt {
    Debt {
        key: lease.key().clone(),
        token: lease.token(),
        locks: lease.held_keys(),
        txn_id,
        intent: Arc::clone(intent),
        state,
        is_commit: false,
    }
}

/// The debt of a commit in doubt. Marks the hold as in doubt.
pub(crate) fn commit_debt(lease: &Lease, txn_id: TxnId) -> Debt {
    lease.mark_in_doubt();
    let intent = Arc::from("the commit");
    Debt {
        is_commit: true,
        ..debt(lease, txn_id, &intent, DebtState::InDoubt)
    }
}
