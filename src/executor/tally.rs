//! [`Tally`]: what was taken back so far, and what could not be.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::effect::Compensation;
use super::handle::Shared;
use super::notes::Hook;
use super::report::{UndoReport, UndoResult, panic_message};
use super::undo::Item;
use super::watch::undone;
use crate::lease::Lease;
use crate::model::error::BoxError;
use crate::model::run_sink::{Debt, DebtState};
use crate::model::txn::TxnId;

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
                // Without its text: a debt is logged.
                let error: BoxError = "it panicked".into();
                self.debt(item, DebtState::Failed(Arc::new(error)));
                UndoResult::Panicked(panic_message(&*payload))
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

    /// Tells of what was taken back, and of every debt: the outcome holds them as well, where there is one.
    pub(super) fn tell(&self, shared: &Shared) {
        if let Some(event) = undone(&self.report) {
            shared.tell(event);
        }
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
