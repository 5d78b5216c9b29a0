//! Fences: the check of the fencing token at the resource.
//!
//! The holder checks its lease, but any time may pass between that check and the effect of a write:
//! the process may stop there, and the next holder may enter. Only the resource itself can refuse
//! such a write, by remembering the largest token that it has seen. (M. Kleppmann, "How to do
//! distributed locking", 2016.)
//!
//! | fence | protects | why the check and the change are one step |
//! |---|---|---|
//! | [`FenceGate`] | a service of your own | the change runs inside the gate |
//! | [`RedisFence`](crate::redis::RedisFence) | data in a Redis server | both are one script |
//! | [`PgFence`](crate::postgres::PgFence), [`sql`] | data in a SQL database | the fence's row is locked to the end of the transaction |
//! | [`K8sFence`](crate::kubernetes::K8sFence) | an object of Kubernetes | the update names the version that the newest holder has read |
//! | [`ZkFence`](crate::zookeeper::ZkFence) | data in the ensemble that grants the lock | both are one `multi` |
//!
//! Data that sqlx changes is protected by the crate `leasehold-sqlx`:
//! [a pool of sqlx](crate::docs::sql#a-pool-of-sqlx).
//!
//! A fence is **raised** to a new holder's token *before* that holder begins its work. Otherwise
//! the old holder could still write between the new holder's first read and its first write.
//!
//! A commit that is not answered may be applied or not. Each of these fences finds out which while
//! its run lasts, and all except [`K8sFence`](crate::kubernetes::K8sFence) also later: [`Resolve`].
//!
//! # Not guaranteed
//!
//! A fence protects only what is changed through it. It needs a store whose tokens grow
//! ([`Fencing::Monotonic`](crate::store::Fencing::Monotonic)).

// The table links to items of these features; its links are checked with the features on.
#![cfg_attr(
    not(all(
        feature = "kubernetes",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

mod erased;
mod gate;
pub mod in_run;
pub(crate) mod newer_holder;
pub(crate) mod resolve;
pub mod sql;

use std::fmt::Debug;

pub use crate::model::already_applied::AlreadyApplied;
pub use crate::model::fence_call::FenceCall;
pub(crate) use erased::{AnyFence, erase};
pub use gate::{FenceGate, Policy, Refusal};
pub use newer_holder::newer_holder;
pub use resolve::{Resolve, partly_applied, too_old};

use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// A resource that compares tokens. Tie it to a lock with [`Lock::fence`](crate::Lock::fence).
pub trait Fence: Debug + Send + Sync + 'static {
    /// Refuses every holder of `key` with a smaller token than `token` from now on.
    ///
    /// # Contract
    ///
    /// After this returns, no change under a smaller token of this key is applied. Never lowers the
    /// fence. Idempotent.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the fence has seen a larger token, so there is a newer
    /// holder. [`Invalid`](crate::ErrorKind::Invalid) if that token is so much larger that another
    /// store granted it: [move a lock](crate::docs::stores#move-a-lock-to-another-store).
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the token is implausibly large. With any other
    /// kind it is unknown whether the fence was raised: do not begin the work.
    fn raise(
        &self,
        key: &Key,
        token: FencingToken,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}
