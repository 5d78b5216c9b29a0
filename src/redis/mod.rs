//! [`RedisStore`]: locks in one Redis server, or in a cluster of them (feature `redis`).
#![doc = include_str!("store/PROTOCOL.md")]

mod fence;
pub(crate) mod store;

pub use fence::{RedisBatch, RedisFence, Written};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use store::simulation;
pub use store::{RedisOptions, RedisStore};
