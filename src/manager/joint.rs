//! Runs under several holds at once.

use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::guard::LockGuard;
use super::hold::Hold;
use super::sink::HoldSink;
use crate::executor::Executor;
use crate::lease::Lease;
use crate::model::commit::HeldKey;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, Intent, RunSink};
use crate::model::shared_runtime::SharedRuntime;

/// An executor whose runs are under `first` and all `others`, which come after it in the order of
/// the keys. All executors of these guards have the lease that `joint` keeps: each member keeps the
/// cancellation token of a joint lease until it ends.
pub(crate) fn joint_executor(
    first: &LockGuard,
    others: &[LockGuard],
    joint: &OnceLock<Lease>,
) -> Executor {
    if others.is_empty() {
        return first.executor();
    }
    let guards = std::iter::once(first).chain(others);
    let leases = || guards.map(|guard| guard.lease().clone()).collect();
    let lease = joint.get_or_init(|| first.lease().joint(leases()));
    let sink = JointSink {
        first: first.sink(),
        others: others
            .iter()
            .map(|guard| Arc::clone(guard.hold()))
            .collect(),
    };
    let budget = first.context().settings.commit_budget;
    Executor::new(lease, Arc::new(sink), budget)
}

/// The sink of the runs under several holds: none is released before what a run left behind is
/// settled.
#[derive(Debug)]
struct JointSink {
    first: HoldSink,
    others: Vec<Arc<Hold>>,
}

impl RunSink for JointSink {
    fn intent(&self, intent: &Intent) {
        self.first.intent(intent);
    }

    fn debt(&self, debt: Debt) {
        // No hold with a debt is handed off.
        self.others
            .iter()
            .for_each(|hold| hold.detached.mark_debt());
        self.first.debt(debt);
    }

    fn lock_numbers(&self) -> Vec<u64> {
        let mut numbers = self.first.lock_numbers();
        numbers.extend(self.others.iter().map(|hold| self.first.lock_number(hold)));
        numbers
    }

    fn runtime(&self) -> Option<&SharedRuntime> {
        self.first.runtime()
    }

    fn is_watched(&self) -> bool {
        self.first.is_watched()
    }

    fn ran(&self, locks: &[HeldKey], run: u64, event: RunEvent) {
        self.first.ran(locks, run, event);
    }

    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>) {
        let in_progress: Vec<_> = (self.others.iter())
            .map(|hold| {
                // Whether the work leaves a debt is not known before it ends.
                hold.detached.mark_debt();
                hold.detached.begin()
            })
            .collect();
        let work = work.inspect(move |_| drop(in_progress));
        self.first.compensate(work.boxed());
    }
}
