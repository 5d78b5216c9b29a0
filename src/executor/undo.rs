//! Taking back what a run did: what may be tried, and what becomes a debt (I6).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::cause::Cause;
use super::effect::FENCED_COMPENSATION_LIMIT;
use super::handle::Shared;
use super::mode::Blocking;
use super::notes::{Step, StepState, ToUndo};
use super::tally::{Compensated, Tally};
use crate::lease::Lease;
use crate::model::run_sink::DebtState;
use crate::model::txn::TxnId;

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
