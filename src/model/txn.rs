//! [`TxnId`]: the name of one run.

use std::fmt;

use crate::model::error::Error;
use crate::model::holder::{hex, random_bytes};

/// The name of one guarded run: 128 random bits, made when first asked for.
///
/// Write it beside what a commit changes, and a commit in doubt can be looked up later. It is no secret.
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
