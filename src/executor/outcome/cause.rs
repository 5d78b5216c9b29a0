//! [`Cause`]: why a run did not commit.

use std::fmt;

use crate::lease::LeaseError;
use crate::model::error::{BoxError, Error};
use crate::model::token::FencingToken;

/// Why a run did not commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E = BoxError> {
    /// The work returned this error.
    Failed(E),
    /// The lease did not allow the commit, or the work gave up because of it. Acquire the lock again.
    Lease(LeaseError),
    /// The commit call proved that it changed nothing.
    NotApplied(BoxError),
    /// Another run of this process committed, or is committing, a cell that this run wrote. Run it again.
    Conflict,
    /// A newer holder was there first: a fence or a cell has seen a larger token. Acquire the lock again.
    Fenced {
        /// The larger token, if the resource reported it.
        seen: Option<FencingToken>,
    },
    /// A step had no answer, and the work returned `Ok` nevertheless. An effect in doubt cannot be part of a commit: find out
    /// inside the step what became of it, and return that.
    StepInDoubt,
    /// The run broke a rule, which the error names, or a resource was missing. Fix the work.
    Refused(Error),
}

impl<E: fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the work failed: {error}"),
            Self::Lease(error) => error.fmt(f),
            Self::NotApplied(error) => write!(f, "the commit was not applied: {error}"),
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
