//! [`RunEvent`]: what an observer receives about a guarded run.

use std::time::Duration;

/// One step in the life of a guarded run, for observers.
///
/// Every run that has [`Entered`](Self::Entered) ends with one event for which
/// [`is_end`](Self::is_end) holds; a run that was refused at its entry has that one event only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunEvent {
    /// The lease was live with the commit budget left, and the work begins.
    Entered,
    /// The work asked for the lease with `tx.check()`.
    Checked {
        /// Whether the run could continue.
        is_live: bool,
    },
    /// The run's changes were undone, as far as possible. Reported before the end of the run, and
    /// only if there was something to undo. If the future of the run was dropped, awaited
    /// compensations follow later in the background.
    Undone {
        /// How many hooks and compensations are done.
        done: usize,
        /// How many failed, panicked or could not soundly be tried.
        not_done: usize,
    },
    /// Refused at its entry: the lease was over, or its remaining time was shorter than the commit
    /// budget. Nothing was done.
    NotStarted,
    /// Committed within the lease, or accepted by a fence.
    Committed {
        /// The remaining time of the lease when the commit began.
        slack: Duration,
    },
    /// Committed, but the lease was over when the commit was done, and no fence protects the
    /// resource.
    CommittedLate {
        /// By how much, at most, the commit ended after the deadline.
        late_by: Duration,
    },
    /// Not committed, and everything was undone.
    RolledBack,
    /// Not committed, and not everything could be undone.
    Incomplete {
        /// How many effects outside the process are left.
        debts: usize,
    },
    /// Refused by a fence or by a cell that a newer holder has written; everything was undone.
    Fenced,
    /// The commit was sent, and it is not known whether it is applied.
    InDoubt,
    /// The work, or the commit call, panicked.
    Panicked,
    /// The future of the run was dropped before its end.
    Dropped,
}

impl RunEvent {
    /// Whether the run is over with this event.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        !matches!(
            self,
            Self::Entered | Self::Checked { .. } | Self::Undone { .. }
        )
    }
}
