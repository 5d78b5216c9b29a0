//! [`Member`]: what a store must do, beyond the contract of a store, to vote in a quorum.

use std::time::Duration;

use super::{Acquired, Claim, Store};
use crate::model::error::Error;
use crate::model::token::FencingToken;

/// The largest difference between the clocks of two members that both count. NTP keeps servers
/// within a hundredth of it.
pub const MAX_SKEW: Duration = Duration::from_secs(1);

/// A member's answer to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a vote that is dropped stays locked until its ttl ends"]
pub struct Vote {
    /// The answer, as from [`Store::acquire`].
    pub acquired: Acquired,
    /// The member's time when it answered, in microseconds, by the clock that its tokens come from.
    pub micros: u64,
}

/// A member's answer to [`Member::raise`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a token that was not raised may be issued again"]
pub enum Raised {
    /// The claim holds the lock at this member, and every later grant of the key at this member
    /// gets a larger token.
    Raised,
    /// The claim does not hold the lock at this member. Nothing was changed.
    Gone,
}

/// A store that can vote in a [`Quorum`](super::quorum::Quorum).
///
/// # Contract
///
/// Beyond that of [`Store`]:
///
/// 1. **Tokens are times.** A token is the largest of: the key's last token + 1, the member's time
///    in microseconds, and the requested floor. So it grows even if the counter is lost.
/// 2. **Tokens are close to the time.** No floor and no raise takes a token further ahead than
///    [`MAX_SKEW`] of the member's time, or of its last token, if that is larger because its clock
///    was set back.
/// 3. **Delayed restart.** A member that forgot its locks grants nothing for the longest TTL of any
///    client plus [`MAX_SKEW`]. After that every forgotten lock has ended, and the member's time is
///    past every token that it issued or confirmed, unless its clock was set back in between.
pub trait Member: Store {
    /// Returns once a request can be sent without a wait, or cannot be sent at all.
    ///
    /// # Contract
    ///
    /// Sends nothing that grants. Right after it returned `Ok`, the first poll of
    /// [`vote`](Self::vote) puts the vote on its connection, ahead of whatever is asked later. So a
    /// quorum can drop a vote that it no longer needs before it is sent.
    ///
    /// # Errors
    ///
    /// Why no request can be sent now.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: whatever is being prepared continues for the next caller.
    fn ready(&self) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Makes one attempt to hold a lock, with a token of at least `floor`.
    ///
    /// # Contract
    ///
    /// As [`Store::acquire`], and idempotent in the same way. A floor that is further ahead of the
    /// member's time than [`MAX_SKEW`] is ignored.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`]; `Unavailable` if the key's counter is further ahead than
    /// [`MAX_SKEW`].
    fn vote(
        &self,
        claim: &Claim,
        floor: Option<FencingToken>,
    ) -> impl Future<Output = Result<Vote, Error>> + Send;

    /// If the claim holds the lock at this member, makes `token` the token of its hold and every
    /// later token of the key larger.
    ///
    /// # Contract
    ///
    /// Compares and writes in one step. Never lowers the key's counter. Idempotent.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the token is further ahead of the member's time than [`MAX_SKEW`].
    fn raise(
        &self,
        claim: &Claim,
        token: FencingToken,
    ) -> impl Future<Output = Result<Raised, Error>> + Send;
}
