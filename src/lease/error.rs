//! [`LeaseError`]: why a lease does not allow an action.

use std::time::Duration;

use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::span::in_millis;

/// Why a lease does not allow an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The lease has ended, for good.
    #[error("the lease is lost: {0}; stop, and ask for the lock again")]
    Lost(Ended),
    /// The lease is live, but the remaining time is shorter than required.
    #[error(
        "the lease is too short: remaining={:?} needed={:?}; wait for a renewal or ask for less",
        in_millis(*.remaining),
        in_millis(*.needed)
    )]
    TooShort {
        /// The remaining time.
        remaining: Duration,
        /// The required time.
        needed: Duration,
    },
    /// The hold is being released: no new run begins or commits.
    #[error("the hold is ending; stop, and ask for the lock again")]
    Ending,
    /// The lease may be live, but the run will not commit: it has broken a rule, or has found a
    /// newer holder. Its outcome says which.
    #[error("the run was refused and will not commit; return, and its outcome says why")]
    Refused,
}

impl From<LeaseError> for Error {
    fn from(error: LeaseError) -> Self {
        let reason = match error {
            LeaseError::Lost(reason) => reason,
            LeaseError::TooShort { .. } => Ended::Lapsed,
            LeaseError::Ending => Ended::Released,
            LeaseError::Refused => return Self::invalid(error.to_string()),
        };
        Self::new(ErrorKind::Lost(reason), error.to_string())
    }
}
