//! [`DetachedWork`]: the compensations of dropped runs, and the debts that they leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::handler::UserThreads;
use crate::model::caught::Caught;
use crate::model::run_sink::Debt;

/// Work under a hold that outlives its run. Made when there is any: most holds have none.
#[derive(Debug, Default)]
pub(super) struct DetachedWork(OnceLock<Arc<WorkState>>);

#[derive(Debug)]
struct WorkState {
    in_progress: watch::Sender<usize>,
    has_debts: AtomicBool,
}

/// One piece of work; it is in progress until this is dropped.
#[derive(Debug)]
#[must_use = "the work is in progress only while this lives"]
pub(super) struct InProgress(Arc<WorkState>);

impl DetachedWork {
    /// Reports an effect that could not be taken back. The hold is not handed off any more.
    pub(super) fn debt(&self, debt: &Debt) {
        self.state().debt(debt);
    }

    /// An effect may not have been taken back: the hold is not handed off any more.
    pub(super) fn mark_debt(&self) {
        self.state().mark_debt();
    }

    pub(super) fn has_debts(&self) -> bool {
        let state = self.0.get();
        state.is_some_and(|state| state.has_debts.load(Ordering::SeqCst))
    }

    pub(super) fn begin(&self) -> InProgress {
        let state = Arc::clone(self.state());
        state.in_progress.send_modify(|count| *count += 1);
        InProgress(state)
    }

    /// Drives `work` to its end on a thread of its own, where it may block without delaying a
    /// heartbeat.
    pub(super) fn run(&self, user_threads: &UserThreads, work: BoxFuture<'static, Vec<Debt>>) {
        let in_progress = self.begin();
        drop(user_threads.drive(async move {
            let state = &in_progress.0;
            match std::panic::AssertUnwindSafe(work).catch_unwind().await {
                Ok(debts) => debts.iter().for_each(|debt| state.debt(debt)),
                Err(payload) => {
                    state.mark_debt();
                    Caught::by(payload);
                    tracing::error!(
                        target: "leasehold::manager", "a compensation panicked; the effect that it should take back is in an unknown state"
                    );
                }
            }
        }));
    }

    /// Completes when nothing is in progress.
    pub(super) async fn done(&self) {
        if let Some(state) = self.0.get() {
            // Fails only when the sender is gone, which lives in `self`.
            let _ = state
                .in_progress
                .subscribe()
                .wait_for(|count| *count == 0)
                .await;
        }
    }

    fn state(&self) -> &Arc<WorkState> {
        self.0.get_or_init(|| {
            Arc::new(WorkState {
                in_progress: watch::Sender::new(0),
                has_debts: AtomicBool::new(false),
            })
        })
    }
}

impl WorkState {
    fn debt(&self, debt: &Debt) {
        self.mark_debt();
        debt.log();
    }

    fn mark_debt(&self) {
        self.has_debts.store(true, Ordering::SeqCst);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.send_modify(|count| *count -= 1);
    }
}
