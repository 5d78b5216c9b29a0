//! The work of users that outlives its run: compensations whose run was dropped, and the debts that they leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::model::run_sink::Debt;

/// Made when there is any: most holds have none.
#[derive(Debug, Default)]
pub(super) struct Aside(OnceLock<Arc<Work>>);

#[derive(Debug)]
struct Work {
    under_way: watch::Sender<usize>,
    has_debts: AtomicBool,
}

impl Aside {
    pub(super) fn debt(&self, debt: &Debt) {
        self.work().debt(debt);
    }

    pub(super) fn owes(&self) {
        self.work().owes();
    }

    pub(super) fn has_debts(&self) -> bool {
        let work = self.0.get();
        work.is_some_and(|work| work.has_debts.load(Ordering::SeqCst))
    }

    /// Drives `work` to its end on a thread of its own, where it may block without delaying a heartbeat.
    pub(super) fn run(&self, handle: &Handle, work: BoxFuture<'static, Vec<Debt>>) {
        let aside = Arc::clone(self.work());
        aside.under_way.send_modify(|count| *count += 1);
        let driver = handle.clone();
        handle.spawn_blocking(move || {
            let done = Done(aside);
            let work = std::panic::AssertUnwindSafe(work).catch_unwind();
            match driver.block_on(work) {
                Ok(debts) => debts.iter().for_each(|debt| done.0.debt(debt)),
                Err(_) => {
                    done.0.owes();
                    tracing::error!(
                        "a compensation panicked; what it was to take back is in an unknown state"
                    );
                }
            }
        });
    }

    /// Completes when nothing is under way.
    pub(super) async fn at_rest(&self) {
        if let Some(work) = self.0.get() {
            // Fails only when the sender is gone, which lives in `self`.
            let _ = work
                .under_way
                .subscribe()
                .wait_for(|count| *count == 0)
                .await;
        }
    }

    fn work(&self) -> &Arc<Work> {
        self.0.get_or_init(|| {
            Arc::new(Work {
                under_way: watch::Sender::new(0),
                has_debts: AtomicBool::new(false),
            })
        })
    }
}

impl Work {
    fn debt(&self, debt: &Debt) {
        self.owes();
        tracing::warn!("an effect could not be taken back: {debt}; settle it by hand");
    }

    fn owes(&self) {
        self.has_debts.store(true, Ordering::SeqCst);
    }
}

struct Done(Arc<Work>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}
