//! [`Watched`]: reports the end of a run to observers.

use crate::executor::context::RunContext;
use crate::executor::outcome::{Committed, RunError};
use crate::model::run_event::RunEvent;

/// A run whose end was not reported yet. If it is dropped in this state, the run panicked, or its future was dropped.
pub(crate) struct Watched<'a> {
    context: Option<&'a RunContext>,
}

impl<'a> Watched<'a> {
    #[inline]
    pub(crate) fn begin(context: &'a RunContext) -> Self {
        Self {
            context: context.is_watched().then_some(context),
        }
    }

    #[inline]
    pub(crate) fn end<T, E>(
        mut self,
        outcome: Result<Committed<T>, RunError<T, E>>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        if let Some(context) = self.context.take() {
            context.notify_watcher(end_of(&outcome));
        }
        outcome
    }
}

impl Drop for Watched<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(context) = self.context {
            context.notify_watcher(if std::thread::panicking() {
                RunEvent::Panicked
            } else {
                RunEvent::Dropped
            });
        }
    }
}

fn end_of<T, E>(outcome: &Result<Committed<T>, RunError<T, E>>) -> RunEvent {
    match outcome {
        Ok(committed) => RunEvent::Committed {
            slack: committed.slack,
        },
        Err(RunError::NotAcquired { .. } | RunError::NotStarted { .. }) => RunEvent::NotStarted,
        Err(RunError::RolledBack { .. }) => RunEvent::RolledBack,
        Err(RunError::Incomplete { debts, .. }) => RunEvent::Incomplete { debts: debts.len() },
        Err(RunError::Fenced { .. }) => RunEvent::Fenced,
        Err(RunError::InDoubt { .. }) => RunEvent::InDoubt,
        Err(RunError::CommittedLate { late_by, .. }) => {
            RunEvent::CommittedLate { late_by: *late_by }
        }
    }
}
