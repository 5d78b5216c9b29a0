//! The words of a step: [`Effect`] and [`EffectError`], [`StepError`], [`Compensation`].

use std::sync::Arc;
use std::time::Duration;

use crate::lease::LeaseError;
use crate::model::error::{BoxError, Error};
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// How long the compensation of a [fenced](Effect::fenced) effect may take when it is awaited, whatever is left of the lease.
pub const FENCED_COMPENSATION_LIMIT: Duration = Duration::from_secs(30);

/// What a step is about to do outside this process, in words for people. A text turns into one.
#[derive(Debug, Clone)]
pub struct Effect {
    pub(super) intent: Arc<str>,
    pub(super) is_fenced: bool,
}

impl Effect {
    /// An effect at a resource that compares no tokens.
    #[must_use]
    pub fn new(intent: impl Into<Arc<str>>) -> Self {
        Self {
            intent: intent.into(),
            is_fenced: false,
        }
    }

    /// The resource compares the token of every request, those of the compensation too. So the compensation is sound
    /// even when the lease is over: at worst it is refused. An awaited one may take [`FENCED_COMPENSATION_LIMIT`].
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.is_fenced = true;
        self
    }
}

impl From<&str> for Effect {
    fn from(intent: &str) -> Self {
        Self::new(intent)
    }
}

impl From<String> for Effect {
    fn from(intent: String) -> Self {
        Self::new(intent)
    }
}

/// Why an effect has no answer to show. A bare `?` on any error means [`Unknown`](Self::Unknown).
#[derive(Debug)]
#[non_exhaustive]
pub enum EffectError {
    /// Proven: nothing happened and nothing will. The step needs no compensation.
    NotApplied(BoxError),
    /// It may have happened, or may happen yet: a debt in doubt, and the hold is not released but left to expire.
    Unknown(BoxError),
}

impl EffectError {
    /// Proven: nothing happened and nothing will.
    pub fn not_applied(error: impl Into<BoxError>) -> Self {
        Self::NotApplied(error.into())
    }

    /// It may have happened, or may happen yet.
    pub fn unknown(error: impl Into<BoxError>) -> Self {
        Self::Unknown(error.into())
    }
}

impl<E: Into<BoxError>> From<E> for EffectError {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The lease did not allow it. Nothing was sent.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The step broke a rule of the run, or no name for the run could be made. Nothing was sent.
    #[error(transparent)]
    Refused(Error),
    /// The effect proved that it did not happen.
    #[error("the step was not applied: {0}")]
    NotApplied(#[source] BoxError),
    /// No answer that could be trusted: it may have happened. The run will not commit.
    #[error("the step is in doubt: {0}; the run will not commit")]
    InDoubt(#[source] BoxError),
}

/// What a compensation is given.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Compensation {
    /// Send this along, so that a fence at the resource can refuse it if a newer holder has acted.
    pub token: FencingToken,
    /// The run whose step is taken back.
    pub txn_id: TxnId,
    /// How long it may take. An awaited compensation is given up after it, as failed.
    pub remaining: Duration,
}
