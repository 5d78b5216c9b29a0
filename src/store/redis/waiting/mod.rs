//! The waiting queue of a lock: how a claim leaves it. A claim enters it by `enter.lua`, with its [attempt](super::acquire).
//!
//! The rules are those of [`MemoryStore`](crate::store::MemoryStore), in Lua. The [store's page](super) has the keys.

mod leave;

pub(super) use leave::{leave_call, withdraw};

use std::time::Duration;

use crate::store::HANDOVER_TIME;

/// How long a handover lasts, by the TTL of whoever hands over. The server does not know that of whoever is next.
pub(super) fn handover_millis(ttl: Duration) -> u128 {
    ttl.min(HANDOVER_TIME).as_millis().max(1)
}
