//! [`Watched`]: reports the end of a run to observers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::executor::context::RunContext;
use crate::executor::outcome::{Committed, RunError};
use crate::model::run_event::RunEvent;

/// A run whose end was not reported yet. If it is dropped in this state, the run panicked, or its future was dropped.
pub(crate) struct Watched<'a> {
    context: Option<&'a RunContext>,
    run: u64,
}

/// The number of the next run that is watched.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl<'a> Watched<'a> {
    #[inline]
    pub(crate) fn begin(context: &'a RunContext) -> Self {
        let context = context.is_watched().then_some(context);
        Self {
            context,
            run: context.map_or(0, |_| NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The number of the run; zero if nobody watches.
    #[inline]
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    #[inline]
    pub(crate) fn end<T, E>(
        mut self,
        outcome: Result<Committed<T>, RunError<T, E>>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        if let Some(context) = self.context.take() {
            context.notify_watcher(self.run, end_of(&outcome));
        }
        outcome
    }
}

impl Drop for Watched<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(context) = self.context {
            let event = if std::thread::panicking() {
                RunEvent::Panicked
            } else {
                RunEvent::Dropped
            };
            context.notify_watcher(self.run, event);
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
