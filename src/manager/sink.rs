//! What the runs under a hold leave behind, passed to the manager: debts, compensations, events.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::context::ManagerContext;
use super::hold::Hold;
use crate::handler::Event;
use crate::model::commit::HeldKey;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, Intent, RunSink};
use crate::model::shared_runtime::SharedRuntime;

/// The sink of the runs under one hold.
#[derive(Debug)]
pub(super) struct HoldSink {
    context: Arc<ManagerContext>,
    hold: Arc<Hold>,
}

impl HoldSink {
    pub(super) fn new(context: &Arc<ManagerContext>, hold: &Arc<Hold>) -> Self {
        Self {
            context: Arc::clone(context),
            hold: Arc::clone(hold),
        }
    }

    pub(super) fn lock_number(&self, of: &Hold) -> u64 {
        self.context.lock_number(of.lease.key())
    }
}

impl RunSink for HoldSink {
    fn intent(&self, intent: &Intent) {
        let observers = &self.context.hooks.observers;
        observers.notify(&Event::Intent { intent });
    }

    fn debt(&self, debt: Debt) {
        self.hold.detached.debt(&debt);
        let observers = &self.context.hooks.observers;
        observers.notify(&Event::Debt { debt: &debt });
    }

    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>) {
        let observers = self.context.hooks.observers.clone();
        let work = work.inspect(move |debts| {
            for debt in debts {
                observers.notify(&Event::Debt { debt });
            }
        });
        (self.hold.detached).run(&self.context.user_threads, Box::pin(work));
    }

    fn lock_numbers(&self) -> Vec<u64> {
        vec![self.lock_number(&self.hold)]
    }

    fn runtime(&self) -> Option<&SharedRuntime> {
        Some(&self.context.runtime)
    }

    fn is_watched(&self) -> bool {
        !self.context.hooks.observers.is_empty()
    }

    fn ran(&self, locks: &[HeldKey], run: u64, event: RunEvent) {
        self.context.hooks.observers.notify(&Event::Run {
            key: &self.hold.origin.grant.claim.key,
            token: self.hold.origin.grant.token,
            locks,
            run,
            event,
        });
    }
}
