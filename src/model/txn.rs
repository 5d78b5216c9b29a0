//! [`TxnId`]: the name of one run.

use std::fmt;
use std::str::FromStr;

use crate::model::error::Error;
use crate::model::holder::{hex, random_bytes};

#[cfg(feature = "serde")]
crate::model::serde::by_conversion!(TxnId, String, |id: TxnId| id.to_string());

/// The name of one guarded run: 128 random bits, made when it is first used.
///
/// Write it next to the data that a commit changes, so that you can look up a commit in doubt later. It is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId([u8; 16]);

impl TxnId {
    /// A new name from the operating system's generator.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system gives no random bytes.
    pub(crate) fn generate() -> Result<Self, Error> {
        Ok(Self(random_bytes()?))
    }

    /// The name's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

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
        let name = TxnId::generate().unwrap();
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
}
