//! [`ConnectionPool`]: the connections of a store, by runtime and purpose.
//!
//! A connection is driven by the runtime that made it, and dies with it. So each calling runtime has its own, and a busy one
//! cannot delay another's heartbeats.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Id;

use super::connection::Connection;
use super::listener::Listener;
use super::target::Target;
use crate::model::error::Error;
use crate::store::dial::runtime;

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

/// A process has a few runtimes, so a search through these is faster than a hash.
#[derive(Debug, Default)]
struct Open {
    connections: Vec<((Id, Purpose), Arc<Connection>)>,
    listeners: Vec<(Id, Arc<Listener>)>,
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
        let ours = connections.iter().find(|(of, _)| *of == (id, purpose));
        if let Some((_, connection)) = ours {
            return Ok(Arc::clone(connection));
        }
        // A new runtime is the moment to forget those that ended.
        connections.retain(|(_, one)| one.is_live() || Arc::strong_count(one) > 1);
        let connection = Arc::new(Connection::new(Arc::clone(&self.target)));
        connections.push(((id, purpose), Arc::clone(&connection)));
        Ok(connection)
    }

    /// The listener of the calling runtime.
    pub(super) fn listener(&self) -> Result<Arc<Listener>, Error> {
        let id = runtime::id("postgresql")?;
        let mut open = self.open.lock();
        let listeners = &mut open.as_mut().ok_or_else(closed)?.listeners;
        if let Some((_, listener)) = listeners.iter().find(|(of, _)| *of == id) {
            return Ok(Arc::clone(listener));
        }
        listeners.retain(|(_, one)| one.is_live() || Arc::strong_count(one) > 1);
        let listener = Arc::new(Listener::new(Arc::clone(&self.target)));
        listeners.push((id, Arc::clone(&listener)));
        Ok(listener)
    }

    /// Drops every connection; later requests fail.
    pub(super) fn close(&self) {
        self.open.lock().take();
    }
}

fn closed() -> Error {
    Error::closed("the postgresql store was closed; nothing was sent")
}
