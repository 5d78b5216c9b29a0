//! The vocabulary of every layer: plain values, without a store or a clock.

pub(crate) mod already_applied;
pub(crate) mod caught;
pub(crate) mod commit;
pub(crate) mod credentials;
pub(crate) mod doubt;
pub(crate) mod error;
pub(crate) mod fence_call;
pub(crate) mod fire_time;
pub(crate) mod holder;
pub(crate) mod key;
pub(crate) mod of_task;
pub(crate) mod options;
pub(crate) mod random;
pub(crate) mod room;
pub(crate) mod run_event;
pub(crate) mod run_sink;
#[cfg(feature = "config")]
mod serde;
pub(crate) mod shared_runtime;
pub(crate) mod span;
pub(crate) mod token;
pub(crate) mod txn;
mod uses;
