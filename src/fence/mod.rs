//! Fences: the check of the fencing token at the resource.
//!
//! A lease is checked by whoever holds it, and between that check and the effect of a write any time may pass: the process
//! may be stopped there, and the next holder let in. Only the resource itself can refuse such a write, by remembering the
//! largest token that it has seen. (M. Kleppmann, "How to do distributed locking", 2016.)
//!
//! | fence | protects | the check and the change are one step because |
//! |---|---|---|
//! | [`FenceGate`] | a service of one's own | the change runs inside the gate |
//! | [`RedisFence`] | data in a Redis server | both are one script |
//! | [`ZkFence`] | data in the ensemble that grants the lock | both are one `multi` |
//!
//! A fence is **raised** to a new holder's token *before* that holder begins its work. Else the old holder could still
//! write between the new one's first read and its first write.
//!
//! # What is not promised
//!
//! A fence protects what is changed through it, and nothing else. It needs a store whose tokens grow
//! ([`Fencing::Monotonic`](crate::store::Fencing::Monotonic)).

// The table links to what features bring; it is held against the code where they are on.
#![cfg_attr(
    not(all(feature = "redis", feature = "zookeeper")),
    allow(rustdoc::broken_intra_doc_links)
)]

#[cfg(feature = "redis")]
mod batch;
mod erased;
mod gate;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::fmt::Debug;

#[cfg(feature = "redis")]
pub use batch::RedisBatch;
pub(crate) use erased::{AnyFence, erase};
pub use gate::{FenceGate, Policy, Refusal};
#[cfg(feature = "redis")]
pub use redis::{RedisFence, Written};
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZkBatch, ZkFence};

use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// A resource that compares tokens. Tie it to a lock with [`Lock::fence`](crate::Lock::fence).
pub trait Fence: Debug + Send + Sync + 'static {
    /// Shuts out every holder of `key` whose token is smaller than `token`, from now on.
    ///
    /// # Contract
    ///
    /// Afterwards no change under a smaller token of this key is applied. Never lowers the fence. Idempotent.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the fence has seen a larger token: a newer holder was there.
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the token is absurdly far ahead of what the fence can believe. Any other kind
    /// says that it is not sure to be raised: do not begin the work.
    fn raise(
        &self,
        key: &Key,
        token: FencingToken,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}
