//! Connections to one server: how they are made, shared, checked and given up.
//!
//! | file | what |
//! |---|---|
//! | `target.rs` | what a connection connects to, and by which clock it waits |
//! | `dialled.rs` | how a connection is made, with the credentials and the certificates of its moment |
//! | `encrypted.rs` | the same over TLS |
//! | `opened.rs` | a connection that was just made, and how long it waits for answers |
//! | `preflight.rs` | what the server reports about itself when a connection is made |
//! | `reconnecting.rs` | a connection that is made again when it is dead |
//! | `session.rs` | one connection as long as it lasts |
//! | `subscriber.rs`, `waiters.rs` | the connection that receives the messages of the server |
//! | `pool.rs` | the connections of a store, by runtime and purpose |
//! | `failure.rs` | why a request has no answer |
//!
//! When a connection is made again, and when it is given up, is in `store/dial/`.

mod dialled;
#[cfg(feature = "tls")]
mod encrypted;
mod failure;
mod opened;
mod pool;
mod preflight;
mod reconnecting;
mod session;
mod subscriber;
mod target;
mod waiters;

pub(super) use dialled::{How, dial};
pub(crate) use failure::Failure;
pub(super) use failure::{confirmed, is_unknown_script};
pub(super) use pool::closed;
pub(crate) use pool::{ConnectionPool, Purpose};
pub(super) use preflight::Server;
pub(crate) use reconnecting::Connection;
pub(super) use session::{IDLE, Session};
pub(super) use subscriber::Subscriber;
pub(crate) use target::Target;
pub(super) use waiters::Wait;
