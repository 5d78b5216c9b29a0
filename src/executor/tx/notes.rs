//! [`Notes`]: what a run has noted: what to undo, what to publish, what to call.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::answer::Answer;
use super::effect::Compensation;
use crate::executor::cell::Drafts;
use crate::executor::outcome::{Cause, Receipt, Refusal};
use crate::model::caught::drop_caught;
use crate::model::commit::CommitPermit;
use crate::model::error::{BoxError, Error};
use crate::model::txn::TxnId;

/// A local undo.
pub(crate) type Hook<'env> = Box<dyn FnOnce() -> Result<(), BoxError> + Send + 'env>;
/// What undoes an effect outside the process. What a [`Tx`](super::Tx) notes has ended when it is
/// polled first.
pub(crate) type Undo<'env> =
    Box<dyn FnOnce(Compensation) -> BoxFuture<'env, Result<(), BoxError>> + Send + 'env>;
/// The durable step of a run; likewise.
pub(crate) type CommitCall<'env> =
    Box<dyn FnOnce(CommitPermit) -> BoxFuture<'env, Answer> + Send + 'env>;
pub(crate) type CommittedHook<'env> = Box<dyn FnOnce(&Receipt) + Send + 'env>;

#[derive(Default)]
pub(crate) struct Notes<'env> {
    /// Oldest first.
    pub(crate) to_undo: Vec<ToUndo<'env>>,
    pub(crate) drafts: Drafts,
    pub(crate) commit: Option<CommitCall<'env>>,
    pub(crate) on_committed: Vec<CommittedHook<'env>>,
    refusal: Option<Refusal>,
    has_newer_holder: bool,
}

pub(crate) enum ToUndo<'env> {
    Local(Hook<'env>),
    Step(Step<'env>),
}

/// An effect outside the process.
pub(crate) struct Step<'env> {
    pub(crate) intent: Arc<str>,
    pub(crate) is_fenced: bool,
    pub(crate) txn_id: TxnId,
    pub(crate) state: StepState<'env>,
}

pub(crate) enum StepState<'env> {
    /// It was sent, and no trustworthy answer has come.
    Sent,
    /// It proved that it did not happen.
    NotApplied,
    /// It happened, and this undoes it.
    Done(Undo<'env>),
}

impl<'env> Notes<'env> {
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.has_newer_holder |= matches!(refusal, Refusal::Fenced { .. });
        self.refusal.get_or_insert(refusal);
    }

    /// Why the run will not commit, whatever its work returned.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// Whether a resource or a cell has reported a newer holder, first or later.
    pub(crate) fn has_newer_holder(&self) -> bool {
        self.has_newer_holder
    }

    /// Whether the work has noted no change: nothing to undo, no cell, no commit.
    pub(crate) fn has_no_change(&self) -> bool {
        self.to_undo.is_empty() && self.drafts.is_empty() && self.commit.is_none()
    }

    /// The commit comes last: a change that is noted after it would not be part of it.
    pub(crate) fn ensure_before_commit(&mut self, call: &str) -> Result<(), Error> {
        if self.commit.is_none() {
            return Ok(());
        }
        let error = Error::invalid(format!(
            "{call} was called after commit_with; nothing was committed; make commit_with the last call of the work"
        ));
        self.refuse(Refusal::Misuse(error.clone()));
        Err(error)
    }

    /// The run is committed, and is not undone any more.
    pub(crate) fn drop_undo(&mut self) {
        for noted in self.to_undo.drain(..) {
            if drop_caught(noted).is_err() {
                tracing::error!(target: "leasehold::run", "what an undo hook had captured panicked as it was dropped");
            }
        }
    }

    /// The notes allow a commit.
    ///
    /// # Errors
    ///
    /// The first refusal, or `StepInDoubt`.
    pub(crate) fn validate<E>(&mut self) -> Result<(), Cause<E>> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal.into());
        }
        let in_doubt = |noted: &ToUndo<'env>| match noted {
            ToUndo::Step(step) => matches!(step.state, StepState::Sent),
            ToUndo::Local(_) => false,
        };
        if self.to_undo.iter().any(in_doubt) {
            return Err(Cause::StepInDoubt);
        }
        Ok(())
    }
}
