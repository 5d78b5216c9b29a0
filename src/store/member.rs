//! [`Member`]: what a store must do beyond the seam to vote in a quorum.

use std::time::Duration;

use super::{Acquired, Claim, Store};
use crate::model::error::Error;
use crate::model::token::FencingToken;

/// How far the clocks of two members may be apart, for both to count. NTP keeps servers within a hundredth of it.
pub const MAX_SKEW: Duration = Duration::from_secs(1);

/// A member's answer to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a vote that is dropped stays locked until its ttl ends"]
pub struct Vote {
    /// The answer, as of [`Store::acquire`].
    pub acquired: Acquired,
    /// The member's time when it answered, in microseconds, by the clock that its tokens are taken from.
    pub micros: u64,
}

/// A member's answer to a raise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a token that was not raised may be met again"]
pub enum Raised {
    /// The claim holds the lock here, and every later grant of the key here gets a larger token.
    Raised,
    /// The claim does not hold the lock here. Nothing was changed.
    Gone,
}

/// A store that may vote in a [`Quorum`](super::Quorum).
///
/// # Contract
///
/// Beyond that of [`Store`]:
///
/// 1. **Tokens are time.** A token is the largest of: the key's last token + 1, the member's time in microseconds, the
///    floor that was asked for. So it grows even over a loss of the counter.
/// 2. **Tokens are near.** No token is further ahead of the member's time than [`MAX_SKEW`]: a grant that would be, is
///    refused.
/// 3. **Delayed restart.** A member that forgot its locks grants nothing for the longest TTL of any client and
///    [`MAX_SKEW`]. Then every lock that it forgot has ended, and its time is past every token that it gave or confirmed.
pub trait Member: Store {
    /// One attempt to hold, with a token of at least `floor`.
    ///
    /// # Contract
    ///
    /// As [`Store::acquire`], and idempotent as that. A floor that is further ahead of the member's time than [`MAX_SKEW`]
    /// is taken for none.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`]; `Unavailable` when the key's counter is further ahead than [`MAX_SKEW`].
    fn vote(
        &self,
        claim: &Claim,
        floor: Option<FencingToken>,
    ) -> impl Future<Output = Result<Vote, Error>> + Send;

    /// If the claim holds the lock here, makes `token` the token of its hold, and every later one of the key larger.
    ///
    /// # Contract
    ///
    /// Compares and writes, at one instant. Never lowers the key's counter. Idempotent.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the token is further ahead of the member's time than [`MAX_SKEW`].
    fn raise(
        &self,
        claim: &Claim,
        token: FencingToken,
    ) -> impl Future<Output = Result<Raised, Error>> + Send;
}
