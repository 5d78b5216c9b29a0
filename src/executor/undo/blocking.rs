//! [`undo_all`]: undoes a blocking run on its own thread.

use super::judge::{Remedy, Why, judge};
use super::tally::{Tally, unless_late};
use crate::executor::context::RunContext;
use crate::executor::tx::{Blocking, ToUndo};
use crate::model::caught::caught;

/// Undoes everything on this thread, newest first.
pub(crate) fn undo_all(
    context: &RunContext,
    run: u64,
    to_undo: Vec<ToUndo<'_, Blocking>>,
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
                let how = caught(|| undo(given));
                let how = how.map(|returned| unless_late(returned, item.is_fenced, &tally.lease));
                tally.compensated(&item, how);
            }
        }
    }
    tally.notify(context);
    tally
}
