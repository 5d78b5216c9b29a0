//! The commit call: [`CommitPermit`] in, [`Applied`] or [`CommitError`] out.
//!
//! These words are the executor's and the fences' both, and so they belong to neither.

use std::time::Duration;

use crate::clock::Stamp;
use crate::model::error::BoxError;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// What a commit call is given: the right to make one durable change, now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommitPermit {
    /// The key of the lock that the run is under: a fence keeps a token for each.
    pub key: Key,
    /// Send this along, so that a fence at the resource can refuse whoever is older.
    pub token: FencingToken,
    /// Write this beside the change, so that a commit in doubt can be looked up.
    pub txn_id: TxnId,
    /// What is left of the lease: take it as the time-out of the call. An awaited commit is given up after it, in doubt;
    /// one that was sent only after it (the process was stopped on the way) has a second for the fence to refuse it.
    pub remaining: Duration,
    /// The end of `remaining` on each of this machine's clocks, for comparing with a later [`Clock::stamp`](crate::Clock::stamp).
    pub not_after: Stamp,
}

/// The resource says that the commit is applied. `()` turns into [`plain`](Self::plain).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    is_fenced: bool,
}

impl Applied {
    /// Applied by a resource that compares no tokens.
    #[must_use]
    pub const fn plain() -> Self {
        Self { is_fenced: false }
    }

    /// Applied by a resource that compared the token of the permit with the largest it had seen, and accepted it, in one
    /// step with the change.
    #[must_use]
    pub const fn fenced() -> Self {
        Self { is_fenced: true }
    }

    pub(crate) const fn is_fenced(self) -> bool {
        self.is_fenced
    }
}

impl From<()> for Applied {
    fn from((): ()) -> Self {
        Self::plain()
    }
}

/// Why a commit call has no [`Applied`] to show.
///
/// A bare `?` on any error means [`Unknown`](Self::Unknown): once the call has begun, "not applied" is claimed only by who can
/// prove it (I7).
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// The resource proved that nothing was and nothing will be applied: a constraint refused it, or it was never sent.
    NotApplied(BoxError),
    /// No answer, or one that proves nothing: it may be applied, or be applied yet.
    Unknown(BoxError),
    /// A fence refused the token, and the change was sent *once*. After a resend say [`Unknown`](Self::Unknown): the refused
    /// copy may be the second.
    Fenced {
        /// The larger token that the fence has seen, where it tells.
        seen: Option<FencingToken>,
    },
}

impl CommitError {
    /// Proven: nothing was and nothing will be applied.
    pub fn not_applied(error: impl Into<BoxError>) -> Self {
        Self::NotApplied(error.into())
    }

    /// It may be applied, or be applied yet.
    pub fn unknown(error: impl Into<BoxError>) -> Self {
        Self::Unknown(error.into())
    }
}

impl<E: Into<BoxError>> From<E> for CommitError {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}
