//! [`undo_all`]: undoes a blocking run on its own thread.

use futures_util::FutureExt;

use super::judge::{Remedy, Why, judge};
use super::tally::{Tally, unless_late};
use crate::executor::context::RunContext;
use crate::executor::tx::ToUndo;
use crate::model::caught::caught;

/// Undoes everything on this thread, newest first.
pub(crate) fn undo_all(
    context: &RunContext,
    run: u64,
    to_undo: Vec<ToUndo<'_>>,
    why: Why,
) -> Tally {
    let mut tally = Tally::new(context.lease().clone(), run);
    for noted in to_undo.into_iter().rev() {
        let step = match noted {
            ToUndo::Local(hook) => {
                tally.run_hook(hook);
                continue;
            }
            ToUndo::Step(step) => step,
        };
        let (item, state) = step.split();
        match judge(state, item.is_fenced, why, &tally.lease) {
            Remedy::Nothing => {}
            Remedy::Owe(state) => tally.owe(&item, state),
            Remedy::Compensate(undo, limit) => {
                let given = tally.compensation(&item, limit);
                let how = caught(|| undo(given).now_or_never()).map(|returned| {
                    let returned = returned.unwrap_or_else(|| Err("it did not end".into()));
                    unless_late(returned, item.is_fenced, &tally.lease)
                });
                tally.compensated(&item, how);
            }
        }
    }
    tally.notify(context);
    tally
}
