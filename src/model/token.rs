//! [`FencingToken`]: a number that grows with each grant of a key.

use std::fmt;

use crate::model::error::Error;

#[cfg(feature = "config")]
crate::model::serde::by_conversion!(FencingToken, u64, u64::from);

/// A number that grows with each grant of a key, over restarts of clients and stores (I8).
///
/// A resource that remembers the largest token it has seen, and refuses smaller ones, refuses every
/// holder whose lease has ended, however late its writes arrive. That check at the resource is a
/// *fence*; the token alone protects nothing. (M. Kleppmann, "How to do distributed locking", 2016;
/// "sequencer" in M. Burrows, "The Chubby lock service", 2006.)
///
/// One token is one *grant*, not always one holder: in a [handoff](crate::Lock::handoff) the next
/// caller in the same process has the same token. Locks with a [fence](crate::Lock::fence) are
/// never handed off.
///
/// Tokens stay below 2^53, so that stores which count in doubles compare them exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[doc(alias = "sequencer")]
#[doc(alias = "epoch")]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token with this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the number is 2^53 or more: no store of
    /// ours issues it.
    pub fn new(number: u64) -> Result<Self, Error> {
        if number > Self::MAX.0 {
            return Err(Error::corrupt(format!(
                "fencing token {number} is not below 2^53; look for another writer of the token counter"
            )));
        }
        Ok(Self(number))
    }

    /// The token's number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// For a signed column in a database. Tokens are below 2^53, so none changes.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0.cast_signed()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self, Error> {
        Self::new(number)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_number_in_a_signed_column() {
        let token = FencingToken::MAX;
        assert_eq!(u64::from(token), token.number());
        assert_eq!(i64::from(token), (1 << 53) - 1);
        assert_eq!(FencingToken::try_from(u64::from(token)).unwrap(), token);
    }

    #[test]
    fn tokens_stay_below_two_to_the_53() {
        assert_eq!(FencingToken::new((1 << 53) - 1).unwrap(), FencingToken::MAX);
        assert!(FencingToken::new(1 << 53).is_err());
    }
}
