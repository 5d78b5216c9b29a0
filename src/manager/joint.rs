//! Runs under several holds at once.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::guard::LockGuard;
use super::hold::Hold;
use crate::executor::Executor;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, Intent, RunSink};

/// An executor for the key of `guard`, whose runs need all of `guards` live.
pub(crate) fn joint_executor(guard: &LockGuard, guards: &[LockGuard]) -> Executor {
    let leases = guards.iter().map(|other| other.lease().clone()).collect();
    let holds = guards.iter().map(|other| Arc::clone(other.hold()));
    let outbox = Joint {
        first: Arc::clone(guard.hold()),
        others: holds
            .filter(|hold| !Arc::ptr_eq(hold, guard.hold()))
            .collect(),
    };
    let budget = guard.hold().shared.settings.commit_budget;
    Executor::new(guard.lease().joint(leases), Arc::new(outbox), budget)
}

/// What a run leaves behind concerns every hold that it was under: none is released before it is settled.
#[derive(Debug)]
struct Joint {
    first: Arc<Hold>,
    others: Vec<Arc<Hold>>,
}

impl RunSink for Joint {
    fn intent(&self, intent: &Intent) {
        self.first.intent(intent);
    }

    fn debt(&self, debt: Debt) {
        // No hold with a debt is handed on.
        self.others.iter().for_each(|hold| hold.owes());
        self.first.debt(debt);
    }

    fn is_watched(&self) -> bool {
        self.first.is_watched()
    }

    fn ran(&self, event: RunEvent) {
        self.first.ran(event);
    }

    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>) {
        // The sender goes with the work, however it ends.
        let (under_way, _) = watch::channel(());
        for hold in &self.others {
            // What the work may leave undone is not known before it ends.
            hold.owes();
            let mut work = under_way.subscribe();
            let hold_on = async move {
                let _ = work.changed().await;
                Vec::new()
            };
            hold.compensate(hold_on.boxed());
        }
        let work = async move {
            let debts = work.await;
            drop(under_way);
            debts
        };
        self.first.compensate(work.boxed());
    }
}
