//! [`Metrics`]: an observer that counts and measures, through the `metrics` facade (feature
//! `metrics`).
//!
//! | name | kind | unit | labels | what |
//! |---|---|---|---|---|
//! | `leasehold_acquire_seconds` | histogram | seconds | `outcome`: `held`, `busy`, `failed`, `abandoned` | how long a call for a lock took, handlers and local queue included |
//! | `leasehold_hold_seconds` | histogram | seconds | `reason`: `released`, `dropped`, `lost`, `closed` | how long a lock was held |
//! | `leasehold_held` | gauge | locks | | how many locks are held now |
//! | `leasehold_waiting` | gauge | callers | | how many callers wait now, in the local queue or for the store |
//! | `leasehold_renewal_round_trip_seconds` | histogram | seconds | | one call of the store to renew what is due |
//! | `leasehold_renewal_timer_lag_seconds` | histogram | seconds | | how late the manager came to its timer before that call: a starved machine |
//! | `leasehold_renewals_total` | counter | holds | `answer`: `extended`, `gone`, `unknown` | what the store answered, for each hold |
//! | `leasehold_runs_total` | counter | runs | `end`: `committed`, `late`, `rolled_back`, `incomplete`, `fenced`, `in_doubt`, `not_started`, `panicked`, `dropped` | how guarded runs ended |
//! | `leasehold_commit_slack_seconds` | histogram | seconds | | what was left of the lease when a commit began |
//! | `leasehold_near_misses_total` | counter | runs | | commits that began with less left than [`near_miss`](Metrics::near_miss), and those that came late |
//! | `leasehold_in_doubt_total` | counter | runs | | commits of which it is not known whether they are applied |
//! | `leasehold_debts_total` | counter | effects | `state`: `in_doubt`, `owed`, `undecided`, `failed` | effects that could not soundly be taken back |
//! | `leasehold_lost_total` | counter | locks | `reason`: `lapsed`, `gone`, `max_hold`, `clock_fault`, `closed`, `other` | leases that were lost |
//!
//! No metric has the key as a label: there are as many as users make. The access log has the keys.

mod handles;

use std::fmt;
use std::time::Duration;

use super::event::{AcquireOutcome, Event};
use super::observer::Observer;
use crate::model::error::Ended;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::DebtState;
use handles::Handles;

/// An observer that feeds the `metrics` facade (feature `metrics`). The [module](self) has the
/// table of names and units.
///
/// The handles are registered once, with the recorder that is installed when it is made: install
/// yours first.
pub struct Metrics {
    handles: Handles,
    near_miss: Duration,
}

impl Metrics {
    /// Registers everything with the recorder that is installed now.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Vec::new())
    }

    /// The same with the label `manager` on everything, for a process with several managers.
    #[must_use]
    pub fn of(manager: impl Into<String>) -> Self {
        Self::with(vec![::metrics::Label::new("manager", manager.into())])
    }

    fn with(labels: Vec<::metrics::Label>) -> Self {
        Self {
            handles: Handles::register(&labels),
            near_miss: Duration::from_millis(100),
        }
    }

    /// Counts a commit that began with less than this left of the lease as a near miss; 100 ms if
    /// it is not given.
    #[must_use]
    pub fn near_miss(mut self, below: Duration) -> Self {
        self.near_miss = below;
        self
    }

    fn ran(&self, event: RunEvent) {
        let to = &self.handles;
        match event {
            RunEvent::Committed { slack } => {
                to.runs.committed.increment(1);
                to.commit_slack.record(slack);
                if slack < self.near_miss {
                    to.near_misses.increment(1);
                }
            }
            RunEvent::CommittedLate { .. } => {
                to.runs.late.increment(1);
                to.near_misses.increment(1);
            }
            RunEvent::InDoubt => {
                to.runs.in_doubt.increment(1);
                to.in_doubt.increment(1);
            }
            RunEvent::RolledBack => to.runs.rolled_back.increment(1),
            RunEvent::Incomplete { .. } => to.runs.incomplete.increment(1),
            RunEvent::Fenced => to.runs.fenced.increment(1),
            RunEvent::NotStarted => to.runs.not_started.increment(1),
            RunEvent::Panicked => to.runs.panicked.increment(1),
            RunEvent::Dropped => to.runs.dropped.increment(1),
            RunEvent::Entered | RunEvent::Checked { .. } | RunEvent::Undone { .. } => {}
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn event(&self, event: &Event<'_>) {
        let to = &self.handles;
        match *event {
            // Counted here, because events of several threads come in any order.
            Event::Wait { began: true, .. } => to.waiting.increment(1.0),
            Event::Wait { .. } => to.waiting.decrement(1.0),
            Event::Acquire { outcome, wait, .. } => match outcome {
                AcquireOutcome::Held { .. } => {
                    to.acquire.held.record(wait);
                    to.held.increment(1.0);
                }
                AcquireOutcome::Busy => to.acquire.busy.record(wait),
                AcquireOutcome::Failed(_) => to.acquire.failed.record(wait),
                AcquireOutcome::Abandoned => to.acquire.abandoned.record(wait),
            },
            Event::Renew {
                extended,
                gone,
                unknown,
                round_trip,
                timer_lag,
                ..
            } => {
                to.round_trip.record(round_trip);
                to.timer_lag.record(timer_lag);
                to.renewals.extended.increment(extended as u64);
                to.renewals.gone.increment(gone as u64);
                to.renewals.unknown.increment(unknown as u64);
            }
            Event::Run { event, .. } => self.ran(event),
            Event::Intent { .. } => {}
            Event::Debt { debt } => match debt.state {
                DebtState::InDoubt => to.debts.in_doubt.increment(1),
                DebtState::Owed => to.debts.owed.increment(1),
                DebtState::Undecided => to.debts.undecided.increment(1),
                DebtState::Failed(_) => to.debts.failed.increment(1),
            },
            Event::Lost { reason, .. } => match reason {
                Ended::Lapsed => to.lost.lapsed.increment(1),
                Ended::Gone => to.lost.gone.increment(1),
                Ended::MaxHold => to.lost.max_hold.increment(1),
                Ended::ClockFault => to.lost.clock_fault.increment(1),
                Ended::Closed => to.lost.closed.increment(1),
                Ended::Released | Ended::Dropped | Ended::Forked => to.lost.other.increment(1),
            },
            // A grant that no caller got was never counted.
            Event::Release {
                was_reported: false,
                ..
            } => {}
            Event::Release {
                reason, held_for, ..
            } => {
                to.held.decrement(1.0);
                match reason {
                    Ended::Released => to.hold.released.record(held_for),
                    Ended::Dropped => to.hold.dropped.record(held_for),
                    Ended::Closed => to.hold.closed.record(held_for),
                    _ => to.hold.lost.record(held_for),
                }
            }
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("near_miss", &self.near_miss)
            .finish_non_exhaustive()
    }
}
