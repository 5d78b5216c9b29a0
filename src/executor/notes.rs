//! What a run has noted: what to take back, what to publish, what to call.

use std::sync::Arc;

use super::cause::Cause;
use super::mode::RunMode;
use super::outcome::Receipt;
use super::staged::AnyDraft;
use crate::model::error::{BoxError, Error};
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// A local undo.
pub(super) type Hook<'env> = Box<dyn FnOnce() -> Result<(), BoxError> + Send + 'env>;
pub(super) type CommittedHook<'env> = Box<dyn FnOnce(&Receipt) + Send + 'env>;

pub(super) struct Notes<'env, M: RunMode> {
    /// Oldest first.
    pub(super) to_undo: Vec<ToUndo<'env, M>>,
    pub(super) drafts: Vec<Arc<dyn AnyDraft>>,
    pub(super) commit: Option<M::Commit<'env>>,
    pub(super) on_committed: Vec<CommittedHook<'env>>,
    refusal: Option<Refusal>,
}

pub(super) enum ToUndo<'env, M: RunMode> {
    Local(Hook<'env>),
    Step(Step<M::Undo<'env>>),
}

/// An effect outside the process.
pub(super) struct Step<U> {
    pub(super) intent: Arc<str>,
    pub(super) is_fenced: bool,
    pub(super) txn_id: TxnId,
    pub(super) state: StepState<U>,
}

pub(super) enum StepState<U> {
    /// It was sent, and no answer has come that could be trusted.
    Sent,
    /// It proved that it did not happen.
    NotApplied,
    /// It happened, and this takes it back.
    Done(U),
}

/// Why a run will not commit, whatever its work answers. The first one counts.
#[derive(Debug)]
pub(super) enum Refusal {
    Misuse(Error),
    Fenced { seen: FencingToken },
}

impl<E> From<Refusal> for Cause<E> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Misuse(error) => Self::Refused(error),
            Refusal::Fenced { seen } => Self::Fenced { seen: Some(seen) },
        }
    }
}

impl<M: RunMode> Default for Notes<'_, M> {
    fn default() -> Self {
        Self {
            to_undo: Vec::new(),
            drafts: Vec::new(),
            commit: None,
            on_committed: Vec::new(),
            refusal: None,
        }
    }
}

impl<'env, M: RunMode> Notes<'env, M> {
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }

    /// The commit comes last: what is asked for after it was given would not be part of it.
    pub(super) fn ensure_before_commit(&mut self, call: &str) -> Result<(), Error> {
        if self.commit.is_none() {
            return Ok(());
        }
        let error = Error::invalid(format!(
            "{call} was called after commit_with; nothing was committed; let commit_with be the last call of the work"
        ));
        self.refuse(Refusal::Misuse(error.clone()));
        Err(error)
    }

    /// What was noted allows a commit.
    ///
    /// # Errors
    ///
    /// The first refusal, or `StepInDoubt`.
    pub(super) fn ensure_sound<E>(&mut self) -> Result<(), Cause<E>> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal.into());
        }
        let in_doubt = |noted: &ToUndo<'env, M>| match noted {
            ToUndo::Step(step) => matches!(step.state, StepState::Sent),
            ToUndo::Local(_) => false,
        };
        if self.to_undo.iter().any(in_doubt) {
            return Err(Cause::StepInDoubt);
        }
        Ok(())
    }
}
