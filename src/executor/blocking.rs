//! The path of a run on the caller's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::cause::Cause;
use super::handle::Shared;
use super::outcome::Committed;
use super::run_error::RunError;
use super::settle::{Settled, Unsettled, in_doubt, nothing_noted, ready, sound, without_call};
use super::tally::commit_debt;
use super::tx::{Home, Tx};
use super::undo::{Why, all};
use crate::model::run_event::RunEvent;

#[inline]
pub(super) fn run<'env, T, E: 'static, W>(
    shared: &'env Shared,
    work: impl FnOnce(&Tx<'env>) -> Result<T, W>,
    into_cause: impl FnOnce(W) -> Cause<E>,
) -> Result<Committed<T>, RunError<T, E>> {
    let watched = shared.watch();
    watched.end(attend(shared, work, into_cause))
}

#[inline]
fn attend<'env, T, E: 'static, W>(
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
    shared.tell(RunEvent::Entered);
    let mut armed = Armed {
        tx: Tx::new(Home::Borrowed(shared)),
        shared,
    };
    let unsettled = match work(&armed.tx) {
        Ok(value) if armed.tx.is_blank() => {
            // Nothing was noted and the home is borrowed: there is nothing to drop, and to find that out costs.
            std::mem::forget(armed);
            return nothing_noted(shared, value);
        }
        Ok(value) => match commit(shared, &mut armed.tx) {
            Ok(settled) => {
                drop(in_progress);
                let notes = armed.tx.take_notes();
                return settled.finish(value, shared, armed.tx.known_txn_id(), notes);
            }
            Err(unsettled) => unsettled,
        },
        Err(why) => Unsettled::No(into_cause(why)),
    };
    Err(take_back(shared, &mut armed.tx, unsettled))
}

/// Takes back what is still noted when it is dropped: the work panicked.
struct Armed<'env> {
    tx: Tx<'env>,
    shared: &'env Shared,
}

impl Drop for Armed<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.tx.is_blank() {
            let to_undo = self.tx.take_notes().to_undo;
            all(self.shared, to_undo, Why::NotCommitted).log();
        }
    }
}

fn commit<E: 'static>(shared: &Shared, tx: &mut Tx<'_>) -> Result<Settled, Unsettled<E>> {
    let cells = sound(tx.noted(), shared.lease().token())?;
    let Some(call) = tx.noted().commit.take() else {
        return Ok(without_call(shared, cells)?);
    };
    let ready = ready(shared, cells, tx.txn_id().map_err(Cause::Refused)?)?;
    let permit = ready.permit.clone();
    let txn_id = permit.txn_id;
    match catch_unwind(AssertUnwindSafe(|| call(permit))) {
        Ok(answer) => ready.answered(shared, answer),
        Err(payload) => {
            let debt = commit_debt(shared.lease(), txn_id);
            let to_undo = std::mem::take(&mut tx.noted().to_undo);
            let mut tally = all(shared, to_undo, Why::CommitInDoubt);
            shared.outbox().debt(debt.clone());
            tally.debts.push(debt);
            tally.log();
            resume_unwind(payload)
        }
    }
}

#[cold]
fn take_back<T, E>(shared: &Shared, tx: &mut Tx<'_>, unsettled: Unsettled<E>) -> RunError<T, E> {
    let to_undo = tx.take_notes().to_undo;
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
