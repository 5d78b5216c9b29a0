//! The error of a fence that has seen a larger token.

use crate::model::error::{Error, ErrorKind, LostReason};
use crate::model::key::Key;
use crate::model::token::FencingToken;

pub(super) fn newer_holder(key: &Key, token: FencingToken, seen: FencingToken) -> Error {
    Error::new(
        ErrorKind::Lost(LostReason::Gone),
        format!(
            "there is a newer holder: key={key} token={token} seen={seen}; acquire the lock again"
        ),
    )
}
