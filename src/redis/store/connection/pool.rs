//! [`ConnectionPool`]: the connections of a store, by runtime and purpose.

use super::reconnecting::Connection;
use super::subscriber::Subscriber;
use crate::model::error::Error;
use crate::store::dial::{self, Pool};

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purpose {
    /// Acquire, release, withdraw, inspect.
    Ask,
    /// Renew; with `replicas` it waits for them too.
    Heartbeat,
    /// Acquire and wait for replicas, which delays every later request.
    Replicated,
}

/// The connections of a store.
pub(crate) type ConnectionPool = Pool<Purpose, Connection, Subscriber>;

pub(in super::super) fn closed() -> Error {
    dial::closed("redis")
}
