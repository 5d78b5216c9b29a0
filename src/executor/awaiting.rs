//! The path of a run that is awaited.
//!
//! Every future that is dropped here leaves its run in one of two states: an armed [`AsyncTx`] (the work was awaited) or an
//! armed [`Unwinding`] (the commit call or the undo was awaited). The drop of either takes the run back.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use super::async_tx::AsyncTx;
use super::cause::Cause;
use super::handle::Shared;
use super::outcome::Committed;
use super::run_error::RunError;
use super::settle::{Settled, Unsettled, in_doubt, nothing_noted, ready, sound, without_call};
use super::tally::commit_debt;
use super::undo::Why;
use super::unwinding::Unwinding;
use crate::clock::{Clock, Stamp};
use crate::model::commit::CommitError;
use crate::model::run_event::RunEvent;

pub(super) async fn run<T, E: 'static, W>(
    shared: &Arc<Shared>,
    work: impl AsyncFnOnce(&AsyncTx) -> Result<T, W>,
    into_cause: impl FnOnce(W) -> Cause<E>,
) -> Result<Committed<T>, RunError<T, E>> {
    let watched = shared.watch();
    watched.end(attend(shared, work, into_cause).await)
}

async fn attend<T, E: 'static, W>(
    shared: &Arc<Shared>,
    work: impl AsyncFnOnce(&AsyncTx) -> Result<T, W>,
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
    let mut tx = AsyncTx::new(Arc::clone(shared));
    let worked = AssertUnwindSafe(async { work(&tx).await })
        .catch_unwind()
        .await;
    let unsettled = match worked {
        Ok(Ok(value)) if tx.tx().is_blank() => return nothing_noted(shared, value),
        Ok(Ok(value)) => match commit(shared, &mut tx).await {
            Ok(settled) => {
                drop(in_progress);
                // Taken out, so that the drop of `tx` takes nothing back.
                let notes = tx.tx().take_notes();
                return settled.finish(value, shared, tx.known_txn_id(), notes);
            }
            Err(unsettled) => unsettled,
        },
        Ok(Err(why)) => Unsettled::No(into_cause(why)),
        Err(payload) => {
            let tally = unwinding(shared, &mut tx).all(Why::NotCommitted).await;
            tally.log();
            resume_unwind(payload)
        }
    };
    let unwinding = unwinding(shared, &mut tx);
    match unsettled {
        Unsettled::No(cause) => {
            let tally = unwinding.all(Why::of(&cause)).await;
            Err(RunError::taken_back(cause, tally.report, tally.debts))
        }
        Unsettled::InDoubt { txn_id, error } => {
            shared.outbox().debt(commit_debt(shared.lease(), txn_id));
            let tally = unwinding.all(Why::CommitInDoubt).await;
            Err(in_doubt(txn_id, error, tally))
        }
    }
}

fn unwinding(shared: &Shared, tx: &mut AsyncTx) -> Unwinding {
    let to_undo = std::mem::take(&mut tx.tx().noted().to_undo);
    Unwinding::new(shared, to_undo, Why::NotCommitted)
}

async fn commit<E: 'static>(shared: &Shared, tx: &mut AsyncTx) -> Result<Settled, Unsettled<E>> {
    let cells = sound(tx.tx().noted(), shared.lease().token())?;
    let Some(call) = tx.tx().noted().commit.take() else {
        return Ok(without_call(shared, cells)?);
    };
    let ready = ready(shared, cells, tx.txn_id().map_err(Cause::Refused)?)?;
    let permit = ready.permit.clone();
    let mut unwinding = unwinding(shared, tx);
    unwinding.commit_begins(permit.txn_id);
    let answer = in_time(shared.lease().clock(), permit.not_after, call(permit)).await;
    let answer = answer.unwrap_or_else(|| {
        Err(CommitError::unknown(
            "no answer came before the lease was over",
        ))
    });
    tx.tx().noted().to_undo = unwinding.answered();
    ready.answered(shared, answer)
}

/// How long a commit call that was sent only after the end of its lease may take to answer.
const LATE_COMMIT_LIMIT: Duration = Duration::from_secs(1);

/// The answer of a commit call, if it comes before `limit`. If the limit has passed when the call was first polled, the process
/// was stopped between the check and the call: what a fence answers then is worth waiting for.
async fn in_time<A>(clock: &Clock, limit: Stamp, call: impl Future<Output = A>) -> Option<A> {
    let mut call = pin!(call);
    let mut sleep = pin!(None);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        if sleep.is_none() {
            let left = limit.since(&clock.stamp());
            let left = if left.is_zero() {
                LATE_COMMIT_LIMIT
            } else {
                left
            };
            sleep.set(Some(clock.sleep(left)));
        }
        match sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}
