//! The waiting queue of a lock: how a claim leaves it. A claim enters it by `enter.lua`, with its [attempt](super::acquire).
//!
//! The rules are those of [`MemoryStore`](crate::store::MemoryStore), in Lua. The [store's page](super) has the keys.

mod leave;

pub(super) use leave::{Tombstone, leave_call, withdraw};
