//! [`RunContext`]: what a run needs to know of its executor: the lease, the commit budget, and
//! where it reports.

use std::sync::Arc;
use std::time::Duration;

use super::inside::Inside;
use super::turn::Turns;
use crate::lease::{InProgress, Lease, LeaseError, Running};
use crate::model::commit::Locks;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::RunSink;

pub(crate) struct RunContext {
    running: Running,
    locks: Locks,
    lock_numbers: Box<[u64]>,
    sink: Arc<dyn RunSink>,
    is_watched: bool,
    commit_budget: Duration,
    turns: Option<Turns>,
}

impl RunContext {
    pub(crate) fn new(lease: &Lease, sink: Arc<dyn RunSink>, commit_budget: Duration) -> Self {
        Self {
            running: lease.register(),
            locks: lease.held_keys(),
            lock_numbers: sink.lock_numbers().into(),
            is_watched: sink.is_watched(),
            sink,
            commit_budget,
            turns: None,
        }
    }

    /// The same, counting its runs separately.
    pub(crate) fn another(&self) -> Self {
        Self {
            turns: self.turns.clone(),
            ..Self::new(self.lease(), Arc::clone(&self.sink), self.commit_budget)
        }
    }

    /// The same, for runs that take turns.
    pub(crate) fn in_turn(&self) -> Self {
        Self {
            turns: Some(Turns::of(self.lease())),
            ..self.another()
        }
    }

    #[inline]
    pub(crate) fn turns(&self) -> Option<&Turns> {
        self.turns.as_ref()
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Lease {
        self.running.lease()
    }

    /// All locks that the runs are under, sorted by key.
    #[inline]
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The current thread is inside of a run until this is dropped.
    #[inline]
    pub(crate) fn inside(&self) -> Inside {
        Inside::enter(&self.lock_numbers)
    }

    pub(crate) fn sink(&self) -> &Arc<dyn RunSink> {
        &self.sink
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    pub(crate) fn commit_budget(&self) -> Duration {
        self.commit_budget
    }

    /// Begins a run, by the fast clock: the strict clocks judge the commit. The run is counted
    /// before any look at the lease, and until the result is dropped, after its last effect: the
    /// end of the hold waits for it (I5).
    #[inline]
    pub(crate) fn begin(&self, run: u64) -> Result<InProgress<'_>, LeaseError> {
        let in_progress = self.running.enter()?;
        let remaining = self.lease().look_fast()?;
        if remaining < self.commit_budget {
            return Err(LeaseError::TooShort {
                remaining,
                needed: self.commit_budget,
            });
        }
        self.notify(run, RunEvent::Entered);
        Ok(in_progress)
    }

    /// The last check before a commit (I4, I5). Returns what is left of the lease.
    #[inline]
    pub(crate) fn ensure_commit(&self) -> Result<Duration, LeaseError> {
        if self.lease().is_closed() {
            return Err(self.ending());
        }
        self.lease().ensure(self.commit_budget)
    }

    /// Why no run may go on under a hold that is ending.
    #[cold]
    pub(crate) fn ending(&self) -> LeaseError {
        let lost = self.lease().lost_reason();
        lost.map_or(LeaseError::Ending, LeaseError::Lost)
    }

    /// Reports to observers. Without observers it costs one branch that always goes the same way.
    #[inline]
    pub(crate) fn notify(&self, run: u64, event: RunEvent) {
        if self.is_watched {
            self.notify_watcher(run, event);
        }
    }

    #[cold]
    pub(crate) fn notify_watcher(&self, run: u64, event: RunEvent) {
        self.sink.ran(&self.locks, run, event);
    }
}
