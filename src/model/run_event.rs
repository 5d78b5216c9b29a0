//! [`RunEvent`]: what an observer receives about a guarded run.

use std::time::Duration;

/// One step in the life of a guarded run, as observers see it.
///
/// Every run that has [`Entered`](Self::Entered) ends with one event for which [`is_end`](Self::is_end) holds; a run that was
/// refused at its entry has that one event only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunEvent {
    /// The lease was live with the commit budget left, and the work begins.
    Entered,
    /// The work asked for the lease with `tx.check()`.
    Checked {
        /// Whether the run could go on.
        is_live: bool,
    },
    /// What the run did was taken back, as far as it could be. Reported before the end of the run, and only if there was
    /// something to take back; where the future of the run was dropped, what must be awaited follows later, by itself.
    Undone {
        /// How many hooks and compensations are done.
        done: usize,
        /// How many failed, panicked or could not soundly be tried.
        not_done: usize,
    },
    /// Refused at its entry: the lease was over, or had less left than the commit budget. Nothing was done.
    NotStarted,
    /// Committed within the lease, or accepted by a fence.
    Committed {
        /// What was left of the lease when the commit began.
        slack: Duration,
    },
    /// Committed, but the lease was over when the commit was done, and no fence vouches for it.
    CommittedLate {
        /// By how much, at most, the commit ended after the deadline.
        late_by: Duration,
    },
    /// Not committed, and everything was taken back.
    RolledBack,
    /// Not committed, and not everything could be taken back.
    Incomplete {
        /// How many effects outside the process are left.
        debts: usize,
    },
    /// Refused by a fence or by a cell that a newer holder has written; everything was taken back.
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
