//! The waiting queue of a lock: how a claim leaves it, and how it is granted the lock. A claim enters it by `enter.lua`, with its
//! [attempt](super::acquire).
//!
//! The rules are those of [`MemoryStore`](crate::store::MemoryStore), in Lua. The [store's page](super) has the keys.

mod leave;
mod message;
mod release;

pub(super) use leave::{leave_call, withdraw};
pub(super) use message::{Asked, AskedClaims};
pub(super) use release::release;

use std::time::Duration;

use crate::store::HANDOVER_TIME;

/// How long a handover lasts, by the TTL of whoever hands over. The server does not know that of whoever is next.
pub(super) fn handover_millis(ttl: Duration) -> u128 {
    ttl.min(HANDOVER_TIME).as_millis().max(1)
}
