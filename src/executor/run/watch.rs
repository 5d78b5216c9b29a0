//! What others see of a run: its spans, for subscribers, and its end, for observers. Where nobody
//! listens, each costs a load and a comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::Span;
use tracing::field::Empty;

use crate::executor::context::RunContext;
use crate::executor::outcome::{Committed, RunError};
use crate::executor::tx::Answer;
use crate::model::commit::{EffectError, keys, tokens};
use crate::model::run_event::RunEvent;
use crate::model::txn::TxnId;

/// A run whose end was not reported yet. If it is dropped in this state, the run panicked, or its
/// future was dropped: then its span has no outcome.
pub(crate) struct Watched<'a> {
    context: Option<&'a RunContext>,
    run: u64,
    /// `lock.run`: from the call to the outcome.
    pub(crate) span: Span,
}

/// The number of the next run that is watched.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl<'a> Watched<'a> {
    #[inline]
    pub(crate) fn begin(context: &'a RunContext) -> Self {
        let span = tracing::debug_span!(
            target: "leasehold::run",
            "lock.run",
            key = %keys(context.locks()),
            token = %tokens(context.locks()),
            outcome = Empty,
        );
        let context = context.is_watched().then_some(context);
        Self {
            context,
            run: context.map_or(0, |_| NEXT.fetch_add(1, Ordering::Relaxed)),
            span,
        }
    }

    /// The number of the run; zero if nobody watches.
    #[inline]
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    #[inline]
    pub(crate) fn end<T, E>(
        mut self,
        outcome: Result<Committed<T>, RunError<T, E>>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        if !self.span.is_disabled() {
            let word = outcome
                .as_ref()
                .map_or_else(RunError::word, |_| "committed");
            self.span.record("outcome", word);
        }
        if let Some(context) = self.context.take() {
            context.notify_watcher(self.run, end_of(&outcome));
        }
        outcome
    }
}

impl Drop for Watched<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(context) = self.context {
            let event = if std::thread::panicking() {
                RunEvent::Panicked
            } else {
                RunEvent::Dropped
            };
            context.notify_watcher(self.run, event);
        }
    }
}

fn end_of<T, E>(outcome: &Result<Committed<T>, RunError<T, E>>) -> RunEvent {
    match outcome {
        Ok(committed) => RunEvent::Committed {
            slack: committed.slack,
        },
        Err(RunError::NotAcquired { .. } | RunError::NotStarted { .. }) => RunEvent::NotStarted,
        Err(RunError::RolledBack { .. }) => RunEvent::RolledBack,
        Err(RunError::Incomplete { undo, .. }) => RunEvent::Incomplete {
            debts: undo.debts().len(),
        },
        Err(RunError::Fenced { .. }) => RunEvent::Fenced,
        Err(RunError::InDoubt { .. }) => RunEvent::InDoubt,
        Err(RunError::CommittedLate { late_by, .. }) => {
            RunEvent::CommittedLate { late_by: *late_by }
        }
    }
}

/// The span `lock.commit`: the commit call, until its answer. It has no outcome if the call
/// panicked or was dropped.
pub(crate) fn commit_span(context: &RunContext, txn_id: TxnId) -> Span {
    tracing::info_span!(
        target: "leasehold::run",
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
