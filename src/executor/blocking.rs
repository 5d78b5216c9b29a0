//! The path of a run on the caller's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::cause::Cause;
use super::handle::Shared;
use super::outcome::{Committed, RunError};
use super::settle::{Settled, Unsettled, in_doubt, nothing_noted, ready, sound, without_call};
use super::tx::{Home, Tx};
use super::undo::{Why, all, commit_debt};

#[inline]
pub(super) fn run<'env, T, E, W>(
    shared: &'env Shared,
    work: impl FnOnce(&Tx<'env>) -> Result<T, W>,
    into_cause: impl FnOnce(W) -> Cause<E>,
) -> Result<Committed<T>, RunError<T, E>> {
    // Raised before any look at the lease, lowered after the last effect: the end of the hold waits for it (I5).
    let in_progress = match shared.running().enter() {
        Ok(in_progress) => in_progress,
        Err(why) => return Err(RunError::NotStarted { why }),
    };
    if let Err(why) = shared.may_begin() {
        return Err(RunError::NotStarted { why });
    }
    let mut tx = Tx::new(Home::Borrowed(shared));
    match catch_unwind(AssertUnwindSafe(|| work(&tx))) {
        Ok(Ok(value)) if tx.notes.get_mut().is_empty() => nothing_noted(shared, value),
        Ok(Ok(value)) => match commit(shared, &mut tx) {
            Ok(settled) => {
                drop(in_progress);
                settled.finish(value, shared, tx.known_txn_id(), tx.into_notes())
            }
            Err(unsettled) => Err(take_back(shared, tx, unsettled)),
        },
        Ok(Err(why)) => Err(take_back(shared, tx, Unsettled::No(into_cause(why)))),
        Err(payload) => {
            all(shared, tx.into_notes().to_undo, Why::NotCommitted).log();
            resume_unwind(payload)
        }
    }
}

fn commit<E>(shared: &Shared, tx: &mut Tx<'_>) -> Result<Settled, Unsettled<E>> {
    let cells = sound(tx.notes.get_mut(), shared.lease().token())?;
    let Some(call) = tx.notes.get_mut().commit.take() else {
        return Ok(without_call(shared, cells)?);
    };
    let ready = ready(shared, cells, tx.txn_id().map_err(Cause::Refused)?)?;
    let (permit, txn_id) = (ready.permit.clone(), ready.permit.txn_id);
    match catch_unwind(AssertUnwindSafe(|| call(permit))) {
        Ok(answer) => ready.answered(shared, answer),
        Err(payload) => {
            let debt = commit_debt(shared.lease(), txn_id);
            let to_undo = std::mem::take(&mut tx.notes.get_mut().to_undo);
            let mut tally = all(shared, to_undo, Why::CommitInDoubt);
            shared.outbox().debt(debt.clone());
            tally.debts.push(debt);
            tally.log();
            resume_unwind(payload)
        }
    }
}

#[cold]
fn take_back<T, E>(shared: &Shared, tx: Tx<'_>, unsettled: Unsettled<E>) -> RunError<T, E> {
    let to_undo = tx.into_notes().to_undo;
    match unsettled {
        Unsettled::No(cause) => {
            let tally = all(shared, to_undo, Why::of(&cause));
            RunError::taken_back(cause, tally.report, tally.debts)
        }
        Unsettled::InDoubt { txn_id, error } => {
            shared.outbox().debt(commit_debt(shared.lease(), txn_id));
            in_doubt(txn_id, error, all(shared, to_undo, Why::CommitInDoubt))
        }
    }
}
