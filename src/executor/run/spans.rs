//! The spans of a run and of its commit. Where nobody listens, each costs a load and a comparison.

use tracing::Span;
use tracing::field::Empty;

use crate::executor::context::RunContext;
use crate::executor::outcome::{Committed, RunError};
use crate::executor::tx::Answer;
use crate::model::commit::{EffectError, keys, tokens};
use crate::model::txn::TxnId;

/// The span `lock.run`: from the call to the outcome. It has none if the run panicked or its future was dropped.
#[inline]
pub(crate) fn run_span(context: &RunContext) -> Span {
    tracing::debug_span!(
        target: "leasehold::executor",
        "lock.run",
        key = %keys(context.locks()),
        token = %tokens(context.locks()),
        outcome = Empty,
    )
}

#[inline]
pub(crate) fn run_ended<T, E>(span: &Span, outcome: &Result<Committed<T>, RunError<T, E>>) {
    if !span.is_disabled() {
        span.record("outcome", word(outcome));
    }
}

fn word<T, E>(outcome: &Result<Committed<T>, RunError<T, E>>) -> &'static str {
    outcome
        .as_ref()
        .map_or_else(RunError::word, |_| "committed")
}

/// The span `lock.commit`: the commit call, until its answer. It has no outcome if the call panicked or was dropped.
pub(crate) fn commit_span(context: &RunContext, txn_id: TxnId) -> Span {
    tracing::info_span!(
        target: "leasehold::executor",
        "lock.commit",
        key = %keys(context.locks()),
        token = %tokens(context.locks()),
        %txn_id,
        outcome = Empty,
    )
}

pub(crate) fn commit_answered(span: &Span, answer: &Answer) {
    if !span.is_disabled() {
        let outcome = match answer {
            Ok(Ok(_)) => "applied",
            Ok(Err(_)) => "declined",
            Err(EffectError::NotApplied(_)) => "not applied",
            Err(EffectError::Fenced { .. }) => "fenced",
            Err(EffectError::Unknown(_)) => "unknown",
        };
        span.record("outcome", outcome);
    }
}
