//! `tx.step`: an effect outside the process, noted before it is sent.

use std::sync::Arc;

use super::effect::{Compensation, Effect, EffectError, StepError};
use super::handle::Shared;
use super::mode::{Awaiting, Blocking, RunMode};
use super::notes::{Step, StepState, ToUndo};
use super::report::HookResult;
use super::tx::Tx;
use crate::lease::LeaseError;
use crate::model::error::BoxError;
use crate::model::run_sink::Intent;

/// A step that was sent. Dropped without an answer (a panic, a dropped future), it is in doubt.
struct Sent<'tx, 'env, M: RunMode> {
    tx: &'tx Tx<'env, M>,
    at: usize,
    is_answered: bool,
}

impl<'env, M: RunMode> Tx<'env, M> {
    /// Looks at the lease, notes the intent, and only then lets the effect be sent.
    fn send(&self, effect: &Effect) -> Result<Sent<'_, 'env, M>, StepError> {
        let shared: &Shared = &self.home;
        let lease = shared.lease();
        let early = self.notes().ensure_before_commit("step");
        early.map_err(StepError::Refused)?;
        let txn_id = self.txn_id().map_err(StepError::Refused)?;
        if lease.is_closed() {
            return Err(StepError::Lease(shared.ending()));
        }
        lease.look_strict()?;
        shared.outbox().intent(&Intent {
            key: lease.key().clone(),
            token: lease.token(),
            txn_id,
            intent: Arc::clone(&effect.intent),
        });
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

impl<'env, M: RunMode> Sent<'_, 'env, M> {
    fn answered<T>(
        mut self,
        answer: Result<T, EffectError>,
        undo: M::Undo<'env>,
    ) -> Result<T, StepError> {
        let (state, answer) = match answer {
            Ok(value) => (StepState::Done(undo), Ok(value)),
            Err(EffectError::NotApplied(error)) => {
                (StepState::NotApplied, Err(StepError::NotApplied(error)))
            }
            // It stays as sent, and the drop says so to the hold.
            Err(EffectError::Unknown(error)) => return Err(StepError::InDoubt(error)),
        };
        if let Some(ToUndo::Step(step)) = self.tx.notes().to_undo.get_mut(self.at) {
            step.state = state;
        }
        self.is_answered = true;
        answer
    }
}

impl<M: RunMode> Drop for Sent<'_, '_, M> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.tx.home.lease().mark_in_doubt();
        }
    }
}

impl<'env> Tx<'env, Blocking> {
    /// Makes an effect outside this process, with the means to take it back.
    ///
    /// The intent is noted *before* `effect` is called, and told to the lock's manager. If the run does not commit, `undo` is
    /// called, newest first among the local hooks, while the lease is live, or at any time if the effect is
    /// [fenced](Effect::fenced). When it may not be called or fails, the outcome names a [`Debt`](crate::executor::Debt).
    ///
    /// `undo` should give up after [`Compensation::remaining`]; one that ends after the lease counts as failed.
    ///
    /// # Errors
    ///
    /// [`StepError::Lease`] and [`StepError::Refused`]: nothing was sent. [`StepError::NotApplied`]: the effect proved that it
    /// did not happen. [`StepError::InDoubt`]: it answered [`EffectError::Unknown`], as a bare `?` inside it does; the run will
    /// not commit, and the hold will be left to expire.
    pub fn step<T, R: HookResult>(
        &self,
        effect: impl Into<Effect>,
        call: impl FnOnce() -> Result<T, EffectError>,
        undo: impl FnOnce(Compensation) -> R + Send + 'env,
    ) -> Result<T, StepError> {
        let sent = self.send(&effect.into())?;
        let answer = call();
        sent.answered(answer, Box::new(move |given| undo(given).into_result()))
    }
}

impl Tx<'static, Awaiting> {
    /// Makes an effect outside this process, with the means to take it back.
    ///
    /// The intent is noted *before* `call` is first polled, and told to the lock's manager. If the run does not commit, `undo`
    /// is awaited, newest first among the local hooks, while the lease is live and for at most what is left of it, or at any
    /// time if the effect is [fenced](Effect::fenced). When it may not be called or fails, the outcome names a
    /// [`Debt`](crate::executor::Debt).
    ///
    /// An answer is awaited as long as the lease is live; renewals prolong the wait. When the lease is over the step is in doubt.
    ///
    /// # Errors
    ///
    /// [`StepError::Lease`] and [`StepError::Refused`]: nothing was sent. [`StepError::NotApplied`]: the effect proved that it
    /// did not happen. [`StepError::InDoubt`]: no answer, or [`EffectError::Unknown`], as from a bare `?` inside it; the run will
    /// not commit, and the hold will be left to expire.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its first poll, nothing was sent. Dropped later, the step is in doubt.
    pub async fn step<T, R, F>(
        &self,
        effect: impl Into<Effect>,
        call: impl Future<Output = Result<T, EffectError>>,
        undo: impl FnOnce(Compensation) -> F + Send + 'static,
    ) -> Result<T, StepError>
    where
        R: HookResult,
        F: Future<Output = R> + Send + 'static,
    {
        let sent = self.send(&effect.into())?;
        let answer = self.while_live(call).await;
        let undo = move |given| Box::pin(async move { undo(given).await.into_result() }) as _;
        sent.answered(answer, Box::new(undo))
    }

    async fn while_live<T>(
        &self,
        call: impl Future<Output = Result<T, EffectError>>,
    ) -> Result<T, EffectError> {
        let lease = self.home.lease();
        let mut call = std::pin::pin!(call);
        loop {
            let before = lease.clock().stamp();
            let not_after = before.plus(lease.look_strict().unwrap_or_default());
            if let Some(answer) = lease.clock().until(not_after, call.as_mut()).await {
                return answer;
            }
            lease.look_strict().map_err(|over: LeaseError| {
                let error: BoxError = over.into();
                EffectError::Unknown(error)
            })?;
        }
    }
}
