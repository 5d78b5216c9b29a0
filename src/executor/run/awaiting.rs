//! The path of a run that is awaited.
//!
//! Every future that is dropped here leaves its run in one of two states: an armed [`AsyncTx`] (the
//! work was awaited) or an armed [`Unwinding`] (the commit call or the undo was awaited). The drop
//! of either undoes the run.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tracing::Instrument;

use super::async_tx::AsyncTx;
use super::settle::{Commit, Settled, Unsettled, nothing_noted, prepare_commit};
use super::watch::Watched;
use crate::clock::{ClockKind, Stamp};
use crate::executor::context::RunContext;
use crate::executor::outcome::{Cause, Committed, RunError};
use crate::executor::undo::{Unwinding, Why};
use crate::lease::Lease;
use crate::model::commit::EffectError;
use crate::model::shared_runtime::SharedRuntime;

pub(crate) async fn run<T, E: 'static, W>(
    context: &Arc<RunContext>,
    work: impl AsyncFnOnce(&AsyncTx) -> Result<T, W>,
    into_cause: impl FnOnce(W) -> Cause<E>,
) -> Result<Committed<T>, RunError<T, E>> {
    let watched = Watched::begin(context);
    // Where there are no timers, the manager's limit the calls of the run, and last as long as it.
    let timers = (context.sink().runtime()).filter(|manager| manager.is_needed());
    let _in_progress = timers.map(SharedRuntime::begin_call);
    let run = run_inner(context, watched.run(), work, into_cause).instrument(watched.span.clone());
    let outcome = match context.turns() {
        None => {
            let mut run = pin!(run);
            poll_fn(|cx| poll_inside(context, timers, run.as_mut(), cx)).await
        }
        Some(turns) => {
            // Boxed, so that the future of a run without turns stays small. Owned, so that a run
            // which is dropped is undone before its turn ends.
            let mut run = Box::pin(run);
            let run = poll_fn(move |cx| poll_inside(context, timers, run.as_mut(), cx));
            turns.awaiting(context.lease(), run).await
        }
    };
    watched.end(outcome)
}

fn poll_inside<F: Future>(
    context: &RunContext,
    timers: Option<&SharedRuntime>,
    run: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let _timers = timers.map(|timers| timers.enter());
    let _inside = context.inside();
    run.poll(cx)
}

async fn run_inner<T, E: 'static, W>(
    context: &Arc<RunContext>,
    run: u64,
    work: impl AsyncFnOnce(&AsyncTx) -> Result<T, W>,
    into_cause: impl FnOnce(W) -> Cause<E>,
) -> Result<Committed<T>, RunError<T, E>> {
    let in_progress = match context.begin(run) {
        Ok(in_progress) => in_progress,
        Err(why) => return Err(RunError::NotStarted { why }),
    };
    let mut tx = AsyncTx::new(Arc::clone(context), run);
    let worked = AssertUnwindSafe(async { work(&tx).await })
        .catch_unwind()
        .await;
    // Before the commit takes its part of the notes.
    let has_no_change = tx.tx().has_no_change();
    let unsettled = match worked {
        Ok(Ok(value)) if tx.tx().is_blank() => return nothing_noted(context, value),
        Ok(Ok(value)) => match commit(context, &mut tx).await {
            Ok(settled) => {
                drop(in_progress);
                // Taken out, so that the drop of `tx` undoes nothing.
                let notes = tx.tx().take_notes();
                return settled.finish(value, context, tx.known_txn_id(), notes);
            }
            Err(unsettled) => unsettled,
        },
        Ok(Err(why)) => Unsettled::given_up(into_cause(why), tx.tx()),
        Err(payload) => {
            let why = Why::of_notes(tx.tx().noted());
            unwinding(context, &mut tx, why).undo_all().await.log();
            resume_unwind(payload)
        }
    };
    let why = unsettled.report(context, tx.tx().noted());
    let tally = unwinding(context, &mut tx, why).undo_all().await;
    Err(unsettled.outcome(tally, has_no_change))
}

fn unwinding(context: &RunContext, tx: &mut AsyncTx, why: Why) -> Unwinding {
    let to_undo = std::mem::take(&mut tx.tx().noted().to_undo);
    Unwinding::new(context, tx.tx().run(), to_undo, why)
}

async fn commit<E: 'static>(
    context: &RunContext,
    tx: &mut AsyncTx,
) -> Result<Settled, Unsettled<E>> {
    let (call, prepared) = match prepare_commit(context, tx.tx())? {
        Commit::Done(settled) => return Ok(settled),
        Commit::Call(call, prepared) => (call, prepared),
    };
    let permit = prepared.permit().clone();
    // From now on a drop means that the commit is in doubt (I7).
    let mut unwinding = unwinding(context, tx, Why::CommitInDoubt);
    unwinding.commit_begins(permit.clone());
    let (span, not_after) = (prepared.span(), permit.not_after);
    let call = span.in_scope(|| call(permit));
    let answer = in_time(context.lease(), not_after, call);
    let answer = answer.instrument(span).await;
    let answer = answer.unwrap_or_else(|| {
        Err(if prepared.permit().end_unsent() {
            EffectError::not_applied("the lease was over before the commit was sent")
        } else {
            EffectError::unknown("no answer came before the lease was over")
        })
    });
    let notes = tx.tx().noted();
    notes.to_undo = unwinding.answered();
    prepared.answered(context, answer, notes)
}

/// How long a commit call may take to answer if the process was stopped during its first poll until
/// the permit had ended.
const LATE_COMMIT_LIMIT: Duration = Duration::from_secs(1);

/// The answer of a commit call, if it comes before `limit`. The call is not polled again when
/// `limit` has passed or the lease is over: it could send its change during the next holder's work.
///
/// If `limit` had passed at the end of the first poll, the process was stopped between the check
/// and the send. Only a fence can help then, so its answer is awaited for [`LATE_COMMIT_LIMIT`].
async fn in_time<A>(lease: &Lease, limit: Stamp, call: impl Future<Output = A>) -> Option<A> {
    let clock = lease.clock();
    let is_over = || limit.since(&clock.stamp()).is_zero() || lease.look_strict().is_err();
    let mut call = pin!(call);
    let mut sleep = pin!(None);
    let mut is_stopped = false;
    poll_fn(|cx| {
        let is_first = sleep.is_none();
        if !is_first && !is_stopped && is_over() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(answer) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        if is_first {
            let now = clock.stamp();
            is_stopped = limit.since(&now).is_zero();
            let end = if is_stopped {
                now.plus(LATE_COMMIT_LIMIT)
            } else {
                limit
            };
            sleep.set(Some(clock.sleep_until(end.on(ClockKind::Boot))));
        }
        match sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}
