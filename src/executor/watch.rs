//! Telling observers of runs. A run that nobody watches pays one branch that always goes the same way.

use super::handle::Shared;
use super::outcome::Committed;
use super::report::{UndoReport, UndoResult};
use super::run_error::RunError;
use crate::model::run_event::RunEvent;

impl Shared {
    #[inline]
    pub(super) fn tell(&self, event: RunEvent) {
        if self.is_watched() {
            self.tell_watcher(event);
        }
    }

    #[cold]
    fn tell_watcher(&self, event: RunEvent) {
        self.outbox().ran(event);
    }

    /// Begins to watch a run for its end.
    #[inline]
    pub(super) fn watch(&self) -> Watched<'_> {
        Watched {
            shared: self.is_watched().then_some(self),
        }
    }
}

/// A run whose end has not been told. Dropped like that, it panicked, or its future was dropped.
pub(super) struct Watched<'a> {
    shared: Option<&'a Shared>,
}

impl Watched<'_> {
    #[inline]
    pub(super) fn end<T, E>(
        mut self,
        outcome: Result<Committed<T>, RunError<T, E>>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        if let Some(shared) = self.shared.take() {
            shared.tell_watcher(end_of(&outcome));
        }
        outcome
    }
}

impl Drop for Watched<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.tell_watcher(if std::thread::panicking() {
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

/// `None` if there was nothing to take back.
pub(super) fn undone(report: &UndoReport) -> Option<RunEvent> {
    let results = report.results();
    let is_done = |result: &UndoResult| matches!(result, UndoResult::Done);
    let done = results
        .iter()
        .filter(|undone| is_done(&undone.result))
        .count();
    (!results.is_empty()).then_some(RunEvent::Undone {
        done,
        not_done: results.len() - done,
    })
}
