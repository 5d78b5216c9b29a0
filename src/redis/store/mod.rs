//! The store.

mod acquire;
mod claims;
mod client;
mod cluster;
mod connection;
mod ends;
pub(crate) mod fault;
mod inspect;
mod judge;
mod mark;
mod member;
mod members;
mod message;
mod names;
mod notes;
mod options;
mod redis_store;
mod renew;
mod reply;
mod script;
mod sentinel;
mod servers;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod simulation;
mod url;

pub(crate) use connection::{Failure, Target};
pub use options::RedisOptions;
pub use redis_store::RedisStore;
pub(crate) use script::{Call, Script};
pub(crate) use servers::Servers;
