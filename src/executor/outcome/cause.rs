//! [`Cause`]: why a run did not commit.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use crate::lease::LeaseError;
use crate::model::already_applied::AlreadyApplied;
use crate::model::error::{BoxError, Error};
use crate::model::token::FencingToken;

/// Why a run did not commit.
///
/// `Display` leaves out an error that is the [`source`](std::error::Error::source) of the
/// [`RunError`](crate::RunError), so that a printed chain of errors names each once.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E = BoxError> {
    /// The work returned this error, or decided so in its commit. The run is not repeated, unless
    /// the error is an [`Error`] that [is retryable](Error::is_retryable), or was caused by one.
    Failed(E),
    /// The work decided to stop, with [`Abort::stop`](crate::Abort::stop). Nothing failed.
    Stopped,
    /// The lease did not allow the commit, or the work gave up because of it. Acquire the lock
    /// again.
    Lease(LeaseError),
    /// The commit call proved that it changed nothing. The run may be repeated, unless the error is
    /// [`AlreadyApplied`](crate::fence::AlreadyApplied), or is or was caused by an [`Error`] that
    /// is [not retryable](Error::is_retryable).
    NotApplied(BoxError),
    /// Another run of this process committed, or is committing, a cell that this run wrote. Run it
    /// again.
    Conflict,
    /// A newer holder was there first: a fence or a cell has seen a larger token. Acquire the lock
    /// again.
    Fenced {
        /// The larger token, if the resource reported it.
        seen: Option<FencingToken>,
    },
    /// A step had no answer, and the work returned `Ok` nevertheless. An effect in doubt cannot be
    /// part of a commit: find out inside the step what became of it, and return that.
    StepInDoubt,
    /// The run broke a rule, which the error names, or a resource was missing. Fix the work.
    Refused(Error),
}

impl<E: 'static> Cause<E> {
    /// The error of the work or of the resource, unless [`Display`](fmt::Display) shows it already.
    pub(super) fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed(error) => boxed(error),
            Self::NotApplied(error) => Some(error.as_ref()),
            // These two are shown in full, so that what caused them comes next.
            Self::Lease(error) => error.source(),
            Self::Refused(error) => error.source(),
            Self::Stopped | Self::Conflict | Self::Fenced { .. } | Self::StepInDoubt => None,
        }
    }
}

impl<E: 'static> Cause<E> {
    /// Whether another run may commit.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::Lease(_) | Self::Conflict | Self::Fenced { .. } => true,
            Self::StepInDoubt => true,
            Self::Refused(_) | Self::Stopped => false,
            Self::Failed(error) => ours(error).is_some_and(Error::is_retryable),
            Self::NotApplied(error) if error.is::<AlreadyApplied>() => false,
            Self::NotApplied(error) => ours(error).is_none_or(Error::is_retryable),
        }
    }
}

/// The error itself, if it is one of ours; otherwise the first of ours that caused it.
fn ours<E: 'static>(error: &E) -> Option<&Error> {
    if let Some(error) = (error as &dyn Any).downcast_ref() {
        return Some(error);
    }
    let mut chain = std::iter::successors(boxed(error), |&error| error.source());
    chain.find_map(|error| error.downcast_ref())
}

/// The error of an untyped run. An error of a type of your own is shown by [`Cause`] itself, and
/// has no `source` there.
fn boxed<E: 'static>(error: &E) -> Option<&(dyn StdError + 'static)> {
    let error = (error as &dyn Any).downcast_ref::<BoxError>()?;
    Some(error.as_ref())
}

impl<E: fmt::Display + 'static> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) if boxed(error).is_some() => f.write_str("the work failed"),
            Self::Failed(error) => write!(f, "the work failed: {error}"),
            Self::Stopped => f.write_str("the work asked to stop"),
            Self::Lease(error) => error.fmt(f),
            Self::NotApplied(_) => f.write_str("the commit was not applied"),
            Self::Conflict => f.write_str(
                "another run of this process committed the same cell first; run it again",
            ),
            Self::Fenced { seen: Some(seen) } => write!(
                f,
                "a newer holder was there first: seen={seen}; acquire the lock again"
            ),
            Self::Fenced { seen: None } => {
                f.write_str("a newer holder was there first; acquire the lock again")
            }
            Self::StepInDoubt => f.write_str(
                "a step had no answer, so nothing was committed; find out inside the step what became of it",
            ),
            Self::Refused(error) => error.fmt(f),
        }
    }
}
