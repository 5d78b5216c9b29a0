//! The decision whether an effect outside the process may be undone now.

use std::sync::Arc;
use std::time::Duration;

use crate::executor::tx::{FENCED_COMPENSATION_LIMIT, Notes, Step, StepState, Undo};
use crate::lease::Lease;
use crate::model::caught::drop_caught;
use crate::model::run_sink::DebtState;
use crate::model::txn::TxnId;

/// Why a run is undone: what may be tried depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing was committed.
    NotCommitted,
    /// A newer holder exists, whatever our own clocks say: the lease counts as over.
    FencedOut,
    /// The commit may be applied: what belongs to it must stay as it is.
    CommitInDoubt,
}

impl Why {
    /// For a run that ended before its commit. Its work may have found a newer holder and failed
    /// with an error of its own.
    pub(crate) fn of_notes(notes: &Notes<'_>) -> Self {
        if notes.has_newer_holder() {
            Self::FencedOut
        } else {
            Self::NotCommitted
        }
    }
}

/// What is to be done about one step.
pub(crate) enum Remedy<'env> {
    Nothing,
    Owe(DebtState),
    /// May be compensated, within this time.
    Compensate(Undo<'env>, Duration),
}

/// The only place that decides whether an effect outside may be undone now. A compensation that may
/// not run is dropped here, and a panic of what it captured stops nothing.
pub(crate) fn judge<'env>(
    state: StepState<'env>,
    is_fenced: bool,
    why: Why,
    lease: &Lease,
) -> Remedy<'env> {
    let undo = match state {
        StepState::NotApplied => return Remedy::Nothing,
        StepState::Sent => return Remedy::Owe(DebtState::InDoubt),
        StepState::Done(undo) if why == Why::CommitInDoubt => {
            let _ = drop_caught(undo);
            return Remedy::Owe(DebtState::Undecided);
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
            Remedy::Compensate(undo, limit)
        }
        (Some(remaining), false) => Remedy::Compensate(undo, remaining),
        (None, false) => {
            let _ = drop_caught(undo);
            Remedy::Owe(DebtState::Owed)
        }
    }
}

/// What identifies the effect of a step, once its undo is taken out of it.
pub(crate) struct Item {
    pub(crate) intent: Arc<str>,
    pub(crate) is_fenced: bool,
    pub(crate) txn_id: TxnId,
}

impl<'env> Step<'env> {
    pub(crate) fn has_happened(&self) -> bool {
        matches!(self.state, StepState::Done(_))
    }

    pub(crate) fn split(self) -> (Item, StepState<'env>) {
        let item = Item {
            intent: self.intent,
            is_fenced: self.is_fenced,
            txn_id: self.txn_id,
        };
        (item, self.state)
    }
}
