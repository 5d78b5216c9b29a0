//! [`Tx::step`]: an effect outside the process, noted before it is sent.

use std::sync::Arc;

use super::effect::{Compensation, Effect, StepError};
use super::notes::{Step, StepState, ToUndo, Undo};
use super::transaction::Tx;
use crate::executor::context::RunContext;
use crate::executor::outcome::{HookResult, Refusal};
use crate::model::commit::EffectError;
use crate::model::run_sink::Intent;

/// A step that was sent. If it is dropped without an answer (a panic, a dropped future), it is in
/// doubt.
pub(crate) struct Sent<'tx, 'env> {
    tx: &'tx Tx<'env>,
    at: usize,
    is_answered: bool,
}

impl<'env> Tx<'env> {
    /// Checks the lease and notes the intent; only then may the effect be sent.
    pub(crate) fn send(&self, effect: &Effect) -> Result<Sent<'_, 'env>, StepError> {
        let context: &RunContext = &self.context;
        let lease = context.lease();
        let early = self.notes().ensure_before_commit("step");
        early.map_err(StepError::Refused)?;
        let txn_id = self.txn_id().map_err(StepError::Refused)?;
        if lease.is_closed() {
            return Err(StepError::Lease(context.ending()));
        }
        self.ensure_not_refused()?;
        lease.look_strict()?;
        context.sink().intent(&Intent {
            key: lease.key().clone(),
            token: lease.token(),
            locks: context.locks().clone(),
            txn_id,
            intent: Arc::clone(&effect.intent),
        });
        // Whoever received the intent may have taken its time.
        lease.look_strict()?;
        let mut notes = self.notes();
        notes.to_undo.push(ToUndo::Step(Step {
            intent: Arc::clone(&effect.intent),
            is_fenced: effect.is_fenced,
            txn_id,
            state: StepState::Sent,
        }));
        Ok(Sent {
            tx: self,
            at: notes.to_undo.len() - 1,
            is_answered: false,
        })
    }
}

impl<'env> Sent<'_, 'env> {
    pub(crate) fn answered<T>(
        mut self,
        answer: Result<T, EffectError>,
        undo: Undo<'env>,
    ) -> Result<T, StepError> {
        let (state, answer) = match answer {
            Ok(value) => (StepState::Done(undo), Ok(value)),
            Err(EffectError::NotApplied(error)) => {
                (StepState::NotApplied, Err(StepError::NotApplied(error)))
            }
            Err(EffectError::Fenced { seen }) => {
                let mut notes = self.tx.notes();
                self.tx.refuse(&mut notes, Refusal::Fenced { seen });
                drop(notes);
                (StepState::NotApplied, Err(StepError::Fenced { seen }))
            }
            // It stays as sent, and the drop marks the hold as in doubt.
            Err(EffectError::Unknown(error)) => return Err(StepError::InDoubt(error)),
        };
        if let Some(ToUndo::Step(step)) = self.tx.notes().to_undo.get_mut(self.at) {
            step.state = state;
        }
        self.is_answered = true;
        answer
    }
}

impl Drop for Sent<'_, '_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.tx.context.lease().mark_in_doubt();
        }
    }
}

impl<'env> Tx<'env> {
    /// Makes an effect outside this process, and notes how to undo it.
    ///
    /// The intent is noted *before* `call` is called, and reported to the lock's manager. If the
    /// run does not commit, the executor calls `undo`, newest first among the local hooks, while
    /// the lease is live, or at any time if the effect is [fenced](Effect::fenced). When it may not
    /// be called or fails, the outcome contains a [`Debt`](crate::run::Debt).
    ///
    /// `undo` should give up after [`Compensation::remaining`]; one that ends after the lease
    /// counts as failed.
    ///
    /// # Errors
    ///
    /// [`StepError::Lease`] and [`StepError::Refused`]: nothing was sent. [`StepError::NotApplied`]
    /// and [`StepError::Fenced`]: the effect proved that it did not happen. [`StepError::InDoubt`]:
    /// `call` returned [`EffectError::Unknown`], as a bare `?` inside it does; the run will not
    /// commit, and its hold is not released but expires.
    pub fn step<T, R: HookResult>(
        &self,
        effect: impl Into<Effect>,
        call: impl FnOnce() -> Result<T, EffectError>,
        undo: impl FnOnce(Compensation) -> R + Send + 'env,
    ) -> Result<T, StepError> {
        let sent = self.send(&effect.into())?;
        let answer = call();
        let undo = move |given| Box::pin(async move { undo(given).into_result() }) as _;
        sent.answered(answer, Box::new(undo))
    }
}
