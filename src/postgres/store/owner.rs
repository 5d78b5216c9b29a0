//! [`Owner`]: an owner token as a parameter of a statement. The driver logs parameters by their
//! `Debug`.

use std::error::Error as StdError;
use std::fmt;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::model::holder::OwnerToken;

/// How many letters of an owner token's text are in a wake-up message: enough to distinguish
/// waiters, and too few to guess the rest.
const SHOWN: usize = 13;

/// An owner token as a `uuid`.
#[derive(Clone, Copy)]
pub(super) struct Owner(pub(super) OwnerToken);

impl Owner {
    /// What the server's messages call it.
    pub(super) fn nickname(self) -> String {
        let digits = self.0.expose();
        let mut name = digits[..8].to_owned();
        name.push('-');
        name.push_str(&digits[8..SHOWN - 1]);
        name
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redacted")
    }
}

impl ToSql for Owner {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_does_not_show_the_token() {
        let owner = Owner(OwnerToken::from_bytes([0xab; 16]));
        assert_eq!(format!("{:?}", [owner]), "[redacted]");
        assert_eq!(owner.nickname(), "abababab-abab");
    }
}
