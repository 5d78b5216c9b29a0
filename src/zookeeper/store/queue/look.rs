//! [`Look`]: what one look at a key's contenders shows, and why it may fail.

use super::super::drivers::Fault;
use super::claim_state::ClaimNode;
use crate::model::error::Error;

/// What one look shows.
#[derive(Debug)]
pub(crate) enum Look {
    /// The lock is ours, unless the claim was withdrawn meanwhile.
    First(ClaimNode),
    /// Another contender is before us.
    Behind,
    /// The lock was ours and was taken away.
    TakenAway,
}

/// Why a look failed.
#[derive(Debug)]
pub(crate) enum LookupError {
    /// The connection or the session broke: what is known about our node may be old, and has to be
    /// read again.
    Broken(Fault),
    /// The caller gets this error.
    Error(Error),
}

impl From<Fault> for LookupError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::InDoubt(_) | Fault::Expired => Self::Broken(fault),
            other => Self::Error(other.into_error("acquire a lock")),
        }
    }
}

impl From<Error> for LookupError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
