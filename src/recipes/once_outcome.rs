//! [`JobOutcome`] and [`JobError`]: how a one-time job ends.

use std::error::Error as StdError;
use std::fmt;

use crate::model::error::Error;

/// What came of a fire time, where nothing failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[must_use = "it says whether the job ran here"]
pub enum JobOutcome<T> {
    /// The job ran here, and other hosts see that it is done.
    Ran(T),
    /// Another host has done it, or this one earlier. The job did not run.
    AlreadyDone,
    /// It had begun before and is not done: its host died, the job failed, or its end was not
    /// recorded. The job did not run. Only with
    /// [`AfterDeath::Skip`](super::once::AfterDeath::Skip).
    AlreadyBegun,
}

/// Why a fire time is not known to be done.
#[non_exhaustive]
pub enum JobError<T, E> {
    /// The job did not run here.
    NotRun {
        /// Why not.
        why: Error,
    },
    /// The job ran and failed. It does not count as done, unless
    /// [`failure_counts`](super::once::OneTimeJob::failure_counts) was asked for.
    Failed {
        /// What the job returned.
        why: E,
    },
    /// The job ran to its end, and the record of that is missing or not confirmed: **another host
    /// may run it again**, or does so now.
    NotRecorded {
        /// What the job returned.
        result: Result<T, E>,
        /// What prevented the record. `Lost`: the lease ended during the job. `InDoubt`: the store
        /// did not answer; the manager repeats the record in the background until it is confirmed
        /// or the TTL is over, and [`shutdown`](crate::LockManager::shutdown) waits for that.
        why: Error,
    },
}

// Written by hand, so that it needs no bound on `T`.
impl<T, E: fmt::Debug> fmt::Debug for JobError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun { why } => f.debug_struct("NotRun").field("why", why).finish(),
            Self::Failed { why } => f.debug_struct("Failed").field("why", why).finish(),
            Self::NotRecorded { result, why } => f
                .debug_struct("NotRecorded")
                .field("failed", &result.as_ref().err())
                .field("why", why)
                .finish_non_exhaustive(),
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for JobError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun { why } => write!(f, "the job did not run: {why}"),
            Self::Failed { why } => write!(f, "the job failed: {why}"),
            Self::NotRecorded { result, why } => {
                match result {
                    Ok(_) => f.write_str("the job ran")?,
                    Err(failed) => write!(f, "the job failed ({failed})")?,
                }
                write!(
                    f,
                    ", and is not recorded as done; another host may run it again: {why}"
                )
            }
        }
    }
}

/// [`source`](StdError::source) is what `Display` does not show: a printed chain names each error
/// once.
impl<T, E: fmt::Debug + fmt::Display> StdError for JobError<T, E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NotRun { why } | Self::NotRecorded { why, .. } => why.source(),
            Self::Failed { .. } => None,
        }
    }
}
