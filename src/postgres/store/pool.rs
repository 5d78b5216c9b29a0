//! [`ConnectionPool`]: the connections of a store, by runtime and purpose.

use super::connection::Connection;
use super::listener::Listener;
use crate::store::dial::Pool;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Acquire, release, withdraw, inspect.
    Ask,
    /// Renew.
    Heartbeat,
}

/// The connections of a store. Its subscriber is a listener.
pub(super) type ConnectionPool = Pool<Purpose, Connection, Listener>;
