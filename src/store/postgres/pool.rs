//! [`ConnectionPool`]: the connections of a store, by runtime and purpose.

use std::sync::Arc;

use parking_lot::Mutex;

use super::connection::Connection;
use super::listener::Listener;
use super::target::Target;
use crate::model::error::Error;
use crate::store::dial::{PerRuntime, runtime};

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Acquire, release, withdraw, inspect.
    Ask,
    /// Renew.
    Heartbeat,
}

#[derive(Debug)]
pub(super) struct ConnectionPool {
    target: Arc<Target>,
    /// `None` once the store is closed.
    open: Mutex<Option<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    connections: PerRuntime<Purpose, Connection>,
    listeners: PerRuntime<(), Listener>,
}

impl ConnectionPool {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            open: Mutex::new(Some(Open::default())),
        }
    }

    /// The connection of the calling runtime for a purpose.
    pub(super) fn connection(&self, purpose: Purpose) -> Result<Arc<Connection>, Error> {
        let id = runtime::id("postgresql")?;
        let mut open = self.open.lock();
        let connections = &mut open.as_mut().ok_or_else(closed)?.connections;
        let new = || Connection::new(Arc::clone(&self.target));
        Ok(connections.get((id, purpose), Connection::is_live, new))
    }

    /// The listener of the calling runtime.
    pub(super) fn listener(&self) -> Result<Arc<Listener>, Error> {
        let id = runtime::id("postgresql")?;
        let mut open = self.open.lock();
        let listeners = &mut open.as_mut().ok_or_else(closed)?.listeners;
        let new = || Listener::new(Arc::clone(&self.target));
        Ok(listeners.get((id, ()), Listener::is_live, new))
    }

    /// Drops every connection; later requests fail.
    pub(super) fn close(&self) {
        self.open.lock().take();
    }
}

fn closed() -> Error {
    Error::closed("the postgresql store was closed; nothing was sent")
}
