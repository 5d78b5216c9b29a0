//! Connections to one server: how they are made, shared, checked and given up.
//!
//! | file | what |
//! |---|---|
//! | `target.rs` | what a connection connects to, and by which clock it waits |
//! | `preflight.rs` | what the server reports about itself when a connection is made |
//! | `connecting.rs` | one attempt to connect, shared by all callers that wait for it |
//! | `redial.rs` | when an attempt may begin |
//! | `reconnecting.rs` | a connection that is made again when it is dead |
//! | `session.rs`, `health.rs` | one connection as long as it lasts, and when it is given up |
//! | `subscriber.rs`, `waiters.rs` | the connection that receives the messages of the server |
//! | `pool.rs`, `runtime.rs` | the connections of a store, by runtime and purpose |
//! | `failure.rs` | why a request has no answer |

mod connecting;
mod failure;
mod health;
mod pool;
mod preflight;
mod reconnecting;
mod redial;
mod runtime;
mod session;
mod subscriber;
mod target;
mod waiters;

pub(crate) use failure::Failure;
pub(super) use failure::is_unknown_script;
pub(super) use pool::closed;
pub(crate) use pool::{ConnectionPool, Purpose};
pub(super) use preflight::Server;
pub(crate) use reconnecting::Connection;
pub(super) use session::Session;
pub(super) use subscriber::Subscriber;
pub(crate) use target::Target;
pub(super) use target::open;
