//! The error of a fence that has seen a larger token.

use super::FenceGate;
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// For authors of fences: the error of [`Fence::raise`](super::Fence::raise) where the fence has
/// `seen` a larger token than `token`. `forget`: what an operator runs so that the fence forgets
/// the key.
#[must_use]
pub fn newer_holder(
    key: &Key,
    token: FencingToken,
    seen: FencingToken,
    forget: impl FnOnce() -> String,
) -> Error {
    // The tokens of one store are not so far apart, so another one granted the larger: to acquire
    // the lock again would not help.
    if seen.number() - token.number() > FenceGate::MAX_JUMP {
        return Error::invalid(format!(
            "the fence has seen the token of a store that counts otherwise: key={key} token={token} seen={seen}; if the lock was moved to another store, no holder of the former one is left and no commit is in doubt, let the fence forget the key: {}",
            forget()
        ));
    }
    Error::new(
        ErrorKind::Lost(Ended::Gone),
        format!(
            "there is a newer holder: key={key} token={token} seen={seen}; acquire the lock again. If that never helps, the lock was moved to a store whose tokens are smaller; once no holder of the former store is left and no commit is in doubt, let the fence forget the key: {}",
            forget()
        ),
    )
}
