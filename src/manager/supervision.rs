//! The supervision of the manager's task: if it dies, every lease is lost at once, since nobody
//! would renew them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::context::ManagerContext;
use super::end::report_lost;
use super::task::Task;
use crate::model::caught::{Caught, caught};
use crate::model::error::Ended;

/// Runs the task, under supervision from before its first poll.
pub(super) fn supervised(
    task: Task,
    context: Arc<ManagerContext>,
) -> impl Future<Output = ()> + Send + 'static {
    let supervision = Supervision(Some(context));
    async move {
        match AssertUnwindSafe(task.run()).catch_unwind().await {
            Ok(()) => supervision.end(),
            // The panic may be that of whoever is given the line.
            Err(payload) => {
                Caught::by(payload);
                let _ = caught(|| {
                    tracing::error!(target: "leasehold::manager", "the lock manager has panicked");
                });
            }
        }
    }
}

/// Dropped before its [`end`](Self::end), the task has panicked, or its runtime has ended.
struct Supervision(Option<Arc<ManagerContext>>);

impl Supervision {
    /// The task has run to its own end.
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        let Some(context) = self.0.take() else { return };
        let holds = context.holds.close();
        context.lifetime.close();
        context.queues.close();
        for hold in &holds {
            hold.lease.close();
            hold.lease.revoke(Ended::Closed);
            context.holds.forget(hold);
        }
        // Only now, because a subscriber that panics may be what the manager has died of: it costs
        // the report, not the process.
        let report = || {
            if !holds.is_empty() {
                tracing::error!(
                    target: "leasehold::manager", holds = holds.len(),
                    "the lock manager is dead; all its leases are lost"
                );
            }
            for hold in &holds {
                report_lost(&context, hold, Ended::Closed);
            }
        };
        let _ = caught(report);
        for hold in holds {
            hold.attachments().end_on(&context.user_threads);
        }
    }
}
