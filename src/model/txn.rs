//! [`TxnId`]: the name of one run.

use std::fmt;
use std::str::FromStr;

use crate::clock::wall_millis;
use crate::model::error::Error;
use crate::model::holder::hex;
use crate::model::random::random_bytes;

#[cfg(feature = "config")]
crate::model::serde::by_conversion!(TxnId, String, |id: TxnId| id.to_string());

/// The name of one guarded run, made when it is first used: the time in milliseconds (48 bits), a
/// mark of the locks that the run is under (32 bits), and 48 random bits.
///
/// Write it next to the data that a commit changes, so that you can look up a commit in doubt
/// later. It is not a secret. Names are ordered by their time: a fence that keeps names for a
/// limited time knows by it which names it may have deleted. By the mark a
/// [`Doubt`](crate::run::Doubt) knows whether it has the locks of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId([u8; 16]);

impl TxnId {
    /// A new name, for a run under the locks of this mark, from the operating system's generator.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system gives no random
    /// bytes.
    pub(crate) fn generate(mark: Mark) -> Result<Self, Error> {
        let Self(mut bytes) = Self::first_at(wall_millis());
        bytes[TIME..RANDOM].copy_from_slice(&mark);
        bytes[RANDOM..].copy_from_slice(&random_bytes()?[RANDOM..]);
        Ok(Self(bytes))
    }

    /// The mark of the locks of its run.
    pub(crate) fn mark(&self) -> &[u8] {
        &self.0[TIME..RANDOM]
    }

    /// The first of all names that are made at this time, in milliseconds since 1970.
    pub(crate) fn first_at(millis: u64) -> Self {
        Self((u128::from(millis) << (128 - 8 * TIME)).to_be_bytes())
    }

    /// When it was made, by the wall clock of its process, in milliseconds since 1970.
    #[must_use]
    pub fn made_at(&self) -> u64 {
        let time = self.0[..TIME].iter();
        time.fold(0, |millis, byte| (millis << 8) | u64::from(*byte))
    }

    /// The name's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// What some locks add up to.
pub(crate) type Mark = [u8; 4];

/// How many of the bytes are the time.
const TIME: usize = 6;
/// Where the random ones begin.
const RANDOM: usize = TIME + size_of::<Mark>();

/// Reads what `Display` writes: 32 hexadecimal digits.
impl FromStr for TxnId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        let number = number.ok_or_else(|| {
            Error::invalid("a txn_id is 32 hexadecimal digits; copy it from the outcome or the log")
        })?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl TryFrom<String> for TxnId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(self.0))
    }
}

impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxnId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let name = TxnId::generate([1, 2, 3, 4]).unwrap();
        assert_eq!(name.to_string().parse::<TxnId>().unwrap(), name);
        for text in [
            "",
            "12",
            "+0000000000000000000000000000001",
            "g0000000000000000000000000000000",
        ] {
            assert!(text.parse::<TxnId>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_ordered_by_the_time_at_which_they_were_made() {
        let before = wall_millis();
        let name = TxnId::generate([1, 2, 3, 4]).unwrap();
        assert!((before..=wall_millis()).contains(&name.made_at()));
        assert_eq!(name.mark(), [1, 2, 3, 4]);
        assert!(TxnId::first_at(before) <= name);
        assert!(name < TxnId::first_at(name.made_at() + 1));
        assert_eq!(TxnId::first_at(7).made_at(), 7);
    }
}
