//! The path of a run on the caller's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures_util::FutureExt;

use super::settle::{Commit, Settled, Unsettled, nothing_noted, prepare_commit};
use super::watch::Watched;
use crate::executor::context::RunContext;
use crate::executor::outcome::{Abort, Committed, RunError};
use crate::executor::tx::{ContextRef, Tx};
use crate::executor::undo::{Tally, Why, commit_debt, undo_all};
use crate::model::commit::EffectError;
use crate::model::error::BoxError;

#[inline]
pub(crate) fn run<'env, T>(
    context: &'env RunContext,
    work: impl FnOnce(&Tx<'env>) -> Result<T, Abort>,
) -> Result<Committed<T>, RunError<T>> {
    let watched = Watched::begin(context);
    let entered = watched.span.enter();
    let outcome = match context.turns() {
        None => run_inner(context, watched.run(), work),
        Some(turns) => turns.blocking(context.lease(), || run_inner(context, watched.run(), work)),
    };
    drop(entered);
    watched.end(outcome)
}

#[inline]
fn run_inner<'env, T>(
    context: &'env RunContext,
    run: u64,
    work: impl FnOnce(&Tx<'env>) -> Result<T, Abort>,
) -> Result<Committed<T>, RunError<T>> {
    let in_progress = match context.begin(run) {
        Ok(in_progress) => in_progress,
        Err(why) => return Err(RunError::NotStarted { why }),
    };
    let inside = context.inside();
    let mut armed = Armed {
        tx: Tx::new(ContextRef::Borrowed(context), run),
        context,
    };
    let worked = work(&armed.tx);
    // Before the commit takes its part of the notes.
    let has_no_change = armed.tx.has_no_change();
    let unsettled = match worked {
        Ok(value) if armed.tx.is_blank() => {
            // Nothing was noted and the context is borrowed: there is nothing to drop, and to find
            // that out costs time.
            std::mem::forget(armed);
            return nothing_noted(context, value);
        }
        Ok(value) => match commit(context, &mut armed.tx) {
            Ok(settled) => {
                drop((inside, in_progress));
                let notes = armed.tx.take_notes();
                return settled.finish(value, context, armed.tx.known_txn_id(), notes);
            }
            Err(unsettled) => unsettled,
        },
        Err(why) => Unsettled::given_up(why.into_cause(), &mut armed.tx),
    };
    let tally = undo(context, &mut armed.tx, &unsettled);
    Err(unsettled.outcome(tally, has_no_change))
}

/// Undoes what is still noted when it is dropped: the work panicked.
struct Armed<'env> {
    tx: Tx<'env>,
    context: &'env RunContext,
}

impl Drop for Armed<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.tx.is_blank() {
            let notes = self.tx.take_notes();
            let why = Why::of_notes(&notes);
            undo_all(self.context, self.tx.run(), notes.to_undo, why).log();
        }
    }
}

fn commit(context: &RunContext, tx: &mut Tx<'_>) -> Result<Settled, Unsettled<BoxError>> {
    let (call, prepared) = match prepare_commit(context, tx)? {
        Commit::Done(settled) => return Ok(settled),
        Commit::Call(call, prepared) => (call, prepared),
    };
    let permit = prepared.permit().clone();
    let txn_id = permit.txn_id;
    let span = prepared.span();
    // A subscriber may panic at the end of the span, which is after the call.
    let call = || span.in_scope(|| call(permit).now_or_never());
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => {
            let answer = answer.unwrap_or_else(|| Err(EffectError::unknown("it did not end")));
            prepared.answered(context, answer, tx.noted())
        }
        Err(payload) => {
            context.sink().debt(commit_debt(context.lease(), txn_id));
            let to_undo = std::mem::take(&mut tx.noted().to_undo);
            undo_all(context, tx.run(), to_undo, Why::CommitInDoubt).log();
            resume_unwind(payload)
        }
    }
}

#[cold]
fn undo(context: &RunContext, tx: &mut Tx<'_>, unsettled: &Unsettled<BoxError>) -> Tally {
    let notes = tx.take_notes();
    let why = unsettled.report(context, &notes);
    undo_all(context, tx.run(), notes.to_undo, why)
}
