//! [`Refusal`]: why a gate admits no change.

use std::fmt;

use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::token::FencingToken;

/// Why a gate refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The token is smaller than one that was seen: there is a newer holder.
    Fenced {
        /// The larger token.
        seen: FencingToken,
    },
    /// The fence was not raised to this token, and the policy admits no other.
    NotRaised {
        /// The token that it was raised to, if it ever was.
        raised: Option<FencingToken>,
    },
    /// The token is implausibly far ahead of the largest one that was seen. To accept it would
    /// refuse every valid holder.
    Implausible {
        /// The largest token that was seen.
        seen: FencingToken,
    },
    /// The commit of this name was resolved as not applied before it arrived.
    Void,
    /// A commit of this name was admitted before: this is another copy of it.
    Again,
    /// So many newer commits were admitted since the run began that the gate does not know whether
    /// this is the first copy.
    Forgotten,
    /// No lock was named, or the name is that of a run under other locks: its doubt would be
    /// resolved beside those.
    OtherLocks,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { seen } => write!(
                f,
                "there is a newer holder: seen={seen}; stop, and acquire the lock again"
            ),
            Self::NotRaised {
                raised: Some(raised),
            } => write!(
                f,
                "the fence was raised to another token: raised={raised}; raise it before the work begins"
            ),
            Self::NotRaised { raised: None } => {
                f.write_str("the fence was never raised; raise it before the work begins")
            }
            Self::Implausible { seen } => write!(
                f,
                "the token is implausibly far ahead: seen={seen}; check where it came from"
            ),
            Self::Void => f.write_str(
                "the commit was resolved before it arrived, and is void; run the work again",
            ),
            Self::Again => f.write_str(
                "a commit of this name was admitted before; resolve it to learn what became of it",
            ),
            Self::Forgotten => f.write_str(
                "the run began too long ago: the gate does not know whether its commit was admitted before; keep more names, or compare the clocks of the clients",
            ),
            Self::OtherLocks => f.write_str(
                "these are not the locks of the run, or none was named; send every lock of its permit, with its token",
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Fenced { .. } => ErrorKind::Lost(Ended::Gone),
            Refusal::NotRaised { .. } => ErrorKind::Invalid,
            Refusal::Implausible { .. } => ErrorKind::Corrupt,
            Refusal::Void => ErrorKind::Unavailable,
            Refusal::Again | Refusal::Forgotten | Refusal::OtherLocks => ErrorKind::Invalid,
        };
        Self::new(kind, refusal.to_string())
    }
}
