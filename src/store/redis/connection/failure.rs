//! [`Failure`]: why a request has no answer.

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind};

use super::super::fault;
use crate::model::error::Error;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was not sent.
    NotSent(Error),
    /// It was answered, and the answer is an error of ours.
    Answered(Error),
    /// The server refused it.
    Refused(RedisError),
    /// It was sent, and no answer came.
    Unanswered(RedisError),
}

impl Failure {
    pub(in super::super) fn of(error: RedisError) -> Self {
        match error.kind() {
            Redis::Server(_) | Redis::Extension | Redis::AuthenticationFailed => {
                Self::Refused(error)
            }
            _ => Self::Unanswered(error),
        }
    }

    pub(in super::super) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Refused(error) if is_unknown_script(error))
    }

    /// The error for our caller.
    pub(crate) fn into_error(self, doing: &str) -> Error {
        match self {
            Self::NotSent(error) | Self::Answered(error) => error,
            Self::Refused(error) => fault::refused(&error, doing),
            Self::Unanswered(error) => fault::unanswered(&error, doing),
        }
    }
}

/// Whether the server does not know the hash of a script. Then it has executed nothing of it.
pub(in super::super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == Redis::Server(ServerErrorKind::NoScript)
}
