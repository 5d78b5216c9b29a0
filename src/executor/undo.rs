//! Taking back what a run did: what may be tried, and what becomes a debt (I6).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::cause::Cause;
use super::effect::{Compensation, FENCED_COMPENSATION_LIMIT};
use super::handle::Shared;
use super::mode::Blocking;
use super::notes::{Hook, Step, StepState, ToUndo};
use super::report::{UndoReport, UndoResult, panic_message};
use crate::error::BoxError;
use crate::lease::Lease;
use crate::outbox::{Debt, DebtState};
use crate::txn::TxnId;

/// Why things are taken back: what may be tried depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing was committed.
    NotCommitted,
    /// A newer holder exists, whatever our own clocks say: the lease counts as over.
    FencedOut,
    /// The commit may be applied: what belongs to it must be left as it is.
    CommitInDoubt,
}

impl Why {
    pub(super) fn of<E>(cause: &Cause<E>) -> Self {
        match cause {
            Cause::Fenced { .. } => Self::FencedOut,
            _ => Self::NotCommitted,
        }
    }
}

/// What is to be done about one step.
pub(super) enum Verdict<U> {
    Nothing,
    Owe(DebtState),
    /// May be compensated, within this time.
    Compensate(U, Duration),
}

/// The only place that decides whether an effect outside may be taken back now.
pub(super) fn judge<U>(
    state: StepState<U>,
    is_fenced: bool,
    why: Why,
    lease: &Lease,
) -> Verdict<U> {
    let undo = match state {
        StepState::NotApplied => return Verdict::Nothing,
        StepState::Sent => return Verdict::Owe(DebtState::InDoubt),
        StepState::Done(_) if why == Why::CommitInDoubt => {
            return Verdict::Owe(DebtState::Undecided);
        }
        StepState::Done(undo) => undo,
    };
    let remaining = match why {
        Why::FencedOut => None,
        _ => lease.look_strict().ok(),
    };
    match (remaining, is_fenced) {
        (remaining, true) => {
            let limit = remaining.unwrap_or_default().max(FENCED_COMPENSATION_LIMIT);
            Verdict::Compensate(undo, limit)
        }
        (Some(remaining), false) => Verdict::Compensate(undo, remaining),
        (None, false) => Verdict::Owe(DebtState::Owed),
    }
}

/// What identifies the effect of a step, once its undo is taken out of it.
pub(super) struct Item {
    pub(super) intent: Arc<str>,
    pub(super) is_fenced: bool,
    pub(super) txn_id: TxnId,
}

impl<U> Step<U> {
    pub(super) fn has_happened(&self) -> bool {
        matches!(self.state, StepState::Done(_))
    }

    pub(super) fn split(self) -> (Item, StepState<U>) {
        let item = Item {
            intent: self.intent,
            is_fenced: self.is_fenced,
            txn_id: self.txn_id,
        };
        (item, self.state)
    }
}

/// How one compensation ended.
pub(super) enum Compensated {
    Done,
    Failed(BoxError),
    Panicked(Box<dyn Any + Send>),
}

impl Compensated {
    /// It said that it is done: believed only if it was within the lease, or fenced.
    pub(super) fn unless_late(
        result: Result<(), BoxError>,
        is_fenced: bool,
        lease: &Lease,
    ) -> Self {
        match result {
            Ok(()) if is_fenced || lease.look_strict().is_ok() => Self::Done,
            Ok(()) => Self::Failed(
                "it ended after the lease: it may have met the next holder's work".into(),
            ),
            Err(error) => Self::Failed(error),
        }
    }
}

/// What was taken back so far, and what could not be.
pub(super) struct Tally {
    pub(super) lease: Lease,
    pub(super) report: UndoReport,
    pub(super) debts: Vec<Debt>,
}

impl Tally {
    pub(super) fn new(lease: Lease) -> Self {
        Self {
            lease,
            report: UndoReport::default(),
            debts: Vec::new(),
        }
    }

    pub(super) fn run_hook(&mut self, hook: Hook<'_>) {
        let result = match catch_unwind(AssertUnwindSafe(hook)) {
            Ok(Ok(())) => UndoResult::Done,
            Ok(Err(error)) => UndoResult::Failed(Arc::new(error)),
            Err(payload) => UndoResult::Panicked(panic_message(&*payload)),
        };
        self.report.push(None, result);
    }

    pub(super) fn compensated(&mut self, item: &Item, how: Compensated) {
        let result = match how {
            Compensated::Done => UndoResult::Done,
            Compensated::Failed(error) => {
                let error = Arc::new(error);
                self.debt(item, DebtState::Failed(Arc::clone(&error)));
                UndoResult::Failed(error)
            }
            Compensated::Panicked(payload) => {
                let message = panic_message(&*payload);
                let error: BoxError = format!("it panicked: {message}").into();
                self.debt(item, DebtState::Failed(Arc::new(error)));
                UndoResult::Panicked(message)
            }
        };
        self.report.push(Some(Arc::clone(&item.intent)), result);
    }

    pub(super) fn owe(&mut self, item: &Item, state: DebtState) {
        self.debt(item, state.clone());
        self.report
            .push(Some(Arc::clone(&item.intent)), UndoResult::NotTried(state));
    }

    fn debt(&mut self, item: &Item, state: DebtState) {
        // An effect or a compensation that may land yet: the next holder must not come before the TTL is over (I5).
        if matches!(state, DebtState::InDoubt | DebtState::Failed(_)) {
            self.lease.mark_in_doubt();
        }
        self.debts
            .push(debt(&self.lease, item.txn_id, &item.intent, state));
    }

    pub(super) fn compensation(&self, item: &Item, remaining: Duration) -> Compensation {
        Compensation {
            token: self.lease.token(),
            txn_id: item.txn_id,
            remaining,
        }
    }

    /// For a run that has no outcome: it was dropped, or it panicked.
    pub(super) fn log(&self) {
        let (key, token) = (self.lease.key(), self.lease.token());
        for undone in self.report.results() {
            if !matches!(undone.result, UndoResult::Done) {
                let intent = undone.intent.as_deref().unwrap_or("a local hook");
                tracing::warn!(%key, %token, intent, "{}", undone.result);
            }
        }
        for debt in &self.debts {
            tracing::error!("{debt}");
        }
    }

    /// Tells of every debt: the outcome holds them as well, where there is one.
    pub(super) fn tell(&self, shared: &Shared) {
        for debt in &self.debts {
            shared.outbox().debt(debt.clone());
        }
    }
}

pub(super) fn debt(lease: &Lease, txn_id: TxnId, intent: &Arc<str>, state: DebtState) -> Debt {
    Debt {
        key: lease.key().clone(),
        token: lease.token(),
        txn_id,
        intent: Arc::clone(intent),
        state,
    }
}

/// The debt of a commit whose outcome nobody will be told: its future was dropped, or its call panicked.
pub(super) fn commit_debt(lease: &Lease, txn_id: TxnId) -> Debt {
    lease.mark_in_doubt();
    debt(lease, txn_id, &Arc::from("the commit"), DebtState::InDoubt)
}

/// Takes everything back on this thread, newest first.
pub(super) fn all(shared: &Shared, to_undo: Vec<ToUndo<'_, Blocking>>, why: Why) -> Tally {
    let mut tally = Tally::new(shared.lease().clone());
    for noted in to_undo.into_iter().rev() {
        let step = match noted {
            ToUndo::Local(hook) => {
                tally.run_hook(hook);
                continue;
            }
            ToUndo::Step(step) => step,
        };
        let (item, state) = step.split();
        match judge(state, item.is_fenced, why, &tally.lease) {
            Verdict::Nothing => {}
            Verdict::Owe(state) => tally.owe(&item, state),
            Verdict::Compensate(undo, limit) => {
                let given = tally.compensation(&item, limit);
                let how = match catch_unwind(AssertUnwindSafe(|| undo(given))) {
                    Ok(result) => Compensated::unless_late(result, item.is_fenced, &tally.lease),
                    Err(payload) => Compensated::Panicked(payload),
                };
                tally.compensated(&item, how);
            }
        }
    }
    tally.tell(shared);
    tally
}
