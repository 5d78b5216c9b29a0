//! The types of a step: [`Effect`], [`StepError`], [`Compensation`].

use std::sync::Arc;
use std::time::Duration;

use crate::lease::LeaseError;
use crate::model::commit::Locks;
use crate::model::error::{BoxError, Error};
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// How long an awaited compensation of a [fenced](Effect::fenced) effect may take at least,
/// whatever is left of the lease.
pub const FENCED_COMPENSATION_LIMIT: Duration = Duration::from_secs(30);

/// What a step is about to do outside this process, in words for people. A text converts into one.
#[derive(Debug, Clone)]
pub struct Effect {
    pub(crate) intent: Arc<str>,
    pub(crate) is_fenced: bool,
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

    /// The resource compares the fencing token of every request, including the compensation's.
    /// Therefore the compensation may run even when the lease is over: at worst it is refused. An
    /// awaited one may take [`FENCED_COMPENSATION_LIMIT`].
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

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The lease did not allow it. Nothing was sent.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The step broke a rule of the run, or the system gave no random bytes for the run's
    /// identifier. Nothing was sent.
    #[error(transparent)]
    Refused(Error),
    /// The effect proved that it did not happen.
    #[error("the step was not applied")]
    NotApplied(#[source] BoxError),
    /// A fence refused the step: a newer holder was there first. It did not happen, and the run
    /// will not commit.
    #[error("a fence refused the step: a newer holder was there first; acquire the lock again")]
    Fenced {
        /// The larger token, if the resource reported it.
        seen: Option<FencingToken>,
    },
    /// No trustworthy answer: it may have happened. The run will not commit.
    #[error("the step is in doubt; the run will not commit")]
    InDoubt(#[source] BoxError),
}

/// What a compensation receives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Compensation {
    /// Send it with the request, so that a fence at the resource can refuse it if a newer holder
    /// has acted. Of a run under several locks it is the token of the first key in their order: for
    /// an effect that belongs to another key, send [`token_of`](Locks::token_of) that key.
    pub token: FencingToken,
    /// The run whose step is undone.
    pub txn_id: TxnId,
    /// How long it may take. An awaited compensation is dropped after this time, and counts as
    /// failed.
    pub remaining: Duration,
    /// All locks that the run is under.
    pub locks: Locks,
}
