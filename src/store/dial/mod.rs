//! How a connection to a server is made again: one attempt for all callers that wait for it, not
//! too often, by the runtime of the caller. For the stores that have connections of their own.
//!
//! | file | what |
//! |---|---|
//! | `connecting.rs` | one attempt to connect, shared by all callers that wait for it |
//! | `reconnecting.rs` | one connection, which is made again when it is dead |
//! | `redial.rs` | when an attempt may begin |
//! | `health.rs`, `in_flight.rs` | when a connection is given up |
//! | `pool.rs` | the connections of a store, by runtime and purpose |
//! | `runtime.rs` | the runtime of the caller, which drives the connections that it makes |

mod connecting;
mod health;
mod in_flight;
mod pool;
mod reconnecting;
mod redial;
pub(crate) mod runtime;

pub(crate) use connecting::Connecting;
pub(crate) use health::{Health, MarksDead};
pub(crate) use in_flight::InFlight;
#[cfg(feature = "postgres")]
pub(crate) use in_flight::PATIENCE;
#[cfg(feature = "redis")]
pub(crate) use pool::closed;
pub(crate) use pool::{Pool, Pooled};
pub(crate) use reconnecting::{Live, Reconnecting};
#[cfg(feature = "postgres")]
pub(crate) use redial::Redial;
