//! [`Refusal`]: a reason, noted during the work, for which the run will not commit.

use super::cause::Cause;
use crate::model::error::Error;
use crate::model::token::FencingToken;

/// Why a run will not commit, whatever its work returns. The first one counts.
#[derive(Debug)]
pub(crate) enum Refusal {
    Misuse(Error),
    Fenced { seen: Option<FencingToken> },
}

impl<E> From<Refusal> for Cause<E> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Misuse(error) => Self::Refused(error),
            Refusal::Fenced { seen } => Self::Fenced { seen },
        }
    }
}
