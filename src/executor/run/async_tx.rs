//! [`AsyncTx`]: the `Tx` of an awaited run, and what its drop undoes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::executor::context::RunContext;
use crate::executor::outcome::HookResult;
use crate::executor::tx::{
    CommitAnswer, CommitValue, Compensation, ContextRef, Effect, StepError, Tx,
};
use crate::executor::undo::{Unwinding, Why};
use crate::executor::while_live::while_live;
use crate::model::commit::{CommitPermit, EffectError};
use crate::model::error::BoxError;
use crate::model::fence_call::is_fence_call;

/// The [`Tx`] of an awaited run. It has the methods of a `Tx`, and its own [`step`](Self::step) and
/// [`commit_with`](Self::commit_with), which are awaited. A function that takes a `&Tx` may be
/// called in both kinds of run; a step that it makes blocks.
///
/// It is a type of its own, without a lifetime, because the compiler cannot prove that the future
/// of an `async` closure is `Send` when the closure takes a type with a lifetime.
pub struct AsyncTx(Tx<'static>);

impl AsyncTx {
    pub(crate) fn new(context: Arc<RunContext>, run: u64) -> Self {
        Self(Tx::new(ContextRef::Owned(context), run))
    }

    pub(crate) fn tx(&mut self) -> &mut Tx<'static> {
        &mut self.0
    }

    /// Makes an effect outside this process, and notes how to undo it.
    ///
    /// The intent is noted *before* `call` is first polled, and reported to the lock's manager. If
    /// the run does not commit, the executor awaits `undo`, newest first among the local hooks,
    /// while the lease is live and for at most what is left of it, or at any time if the effect is
    /// [fenced](Effect::fenced). When it may not be called or fails, the outcome contains a
    /// [`Debt`](crate::run::Debt).
    ///
    /// The lease is checked before every poll of `call`: when it is over, `call` is not polled
    /// again, and the step is in doubt. Renewals prolong the wait.
    ///
    /// # Errors
    ///
    /// [`StepError::Lease`] and [`StepError::Refused`]: nothing was sent. [`StepError::NotApplied`]
    /// and [`StepError::Fenced`]: the effect proved that it did not happen. [`StepError::InDoubt`]:
    /// no answer, or [`EffectError::Unknown`], as from a bare `?` inside it; the run will not
    /// commit, and its hold is not released but expires.
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
        let sent = self.0.send(&effect.into())?;
        let answer = self.answer_of(call).await;
        let undo = move |given| Box::pin(async move { undo(given).await.into_result() }) as _;
        sent.answered(answer, Box::new(undo))
    }

    async fn answer_of<T>(
        &self,
        call: impl Future<Output = Result<T, EffectError>>,
    ) -> Result<T, EffectError> {
        let lease = self.0.context.lease();
        let mut call = std::pin::pin!(while_live(lease, call));
        loop {
            let before = lease.clock().stamp();
            let remaining = match lease.look_strict() {
                Ok(remaining) => remaining,
                Err(over) => return Err(EffectError::unknown(over)),
            };
            let not_after = before.plus(remaining);
            match lease.clock().until(not_after, call.as_mut()).await {
                Some(Some(answer)) => return answer,
                Some(None) => {
                    return Err(EffectError::unknown("the lease ended before the answer"));
                }
                // A renewal may have extended the lease.
                None => {}
            }
        }
    }

    /// Sets *the* commit: the one durable change outside this process. The executor awaits it after
    /// the work has returned `Ok` and the lease was found live with at least the commit budget
    /// left. It is the last call of the work.
    ///
    /// It returns `()`, or [`Applied::fenced`](crate::run::Applied::fenced) if the resource
    /// compared all tokens of the permit; or an [`EffectError`], in which a bare `?` means that the
    /// commit is in doubt (I7), with the exception that [it](EffectError) names.
    ///
    /// A value in its answer ([`Applied::with`](crate::run::Applied::with)) comes out of the
    /// [`CommitValue`]. An answer `Ok(Err(why))` is the caller's own decision against the commit,
    /// and is returned in [`Cause::Failed`](crate::Cause::Failed).
    ///
    /// After [`CommitPermit::remaining`] it is not polled again, and the commit is in doubt. There
    /// are two exceptions: if the process was stopped during the first poll until the permit had
    /// ended, the call gets one more second, so that a fence can refuse it. And if `commit` returns
    /// the call of a fence itself, which had not sent its change, nothing was applied.
    pub fn commit_with<A, F>(
        &self,
        commit: impl FnOnce(CommitPermit) -> F + Send + 'static,
    ) -> CommitValue<A::Value>
    where
        A: CommitAnswer,
        A::Value: Send + 'static,
        A::Refusal: Into<BoxError> + Send + 'static,
        F: Future<Output = Result<A, EffectError>> + Send + 'static,
    {
        let value = CommitValue::empty();
        let kept = value.shared();
        self.0.set_commit(Box::new(move |permit| {
            // The call begins inside the future, so a panic in the call and one in the future are
            // handled alike.
            Box::pin(async move {
                let call = commit(permit.clone());
                if is_fence_call::<F>() {
                    permit.is_for_a_fence();
                }
                kept.keep(call.await)
            })
        }));
        value
    }
}

impl Deref for AsyncTx {
    type Target = Tx<'static>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The future of the run was dropped while the work was awaited.
impl Drop for AsyncTx {
    fn drop(&mut self) {
        if !self.0.is_blank() {
            let notes = self.0.take_notes();
            let why = Why::of_notes(&notes);
            drop(Unwinding::new(
                &self.0.context,
                self.0.run(),
                notes.to_undo,
                why,
            ));
        }
    }
}

impl fmt::Debug for AsyncTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
