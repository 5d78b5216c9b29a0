//! [`ConnectionPool`]: the connections of a store, by runtime and purpose.

use std::sync::Arc;

use parking_lot::Mutex;

use super::reconnecting::Connection;
use super::subscriber::Subscriber;
use super::target::Target;
use crate::model::error::Error;
use crate::store::dial::{PerRuntime, runtime};

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
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    target: Arc<Target>,
    /// `None` once the store is closed.
    open: Mutex<Option<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    connections: PerRuntime<Purpose, Connection>,
    subscribers: PerRuntime<(), Subscriber>,
}

impl ConnectionPool {
    pub(in super::super) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            open: Mutex::new(Some(Open::default())),
        }
    }

    /// The connection of the calling runtime for a purpose.
    pub(in super::super) fn connection(&self, purpose: Purpose) -> Result<Arc<Connection>, Error> {
        let id = runtime::id("redis")?;
        let mut open = self.open.lock();
        let connections = &mut open.as_mut().ok_or_else(closed)?.connections;
        let new = || Connection::new(Arc::clone(&self.target));
        Ok(connections.get((id, purpose), Connection::is_live, new))
    }

    /// The subscriber of the calling runtime.
    pub(in super::super) fn subscriber(&self) -> Result<Arc<Subscriber>, Error> {
        let id = runtime::id("redis")?;
        let mut open = self.open.lock();
        let subscribers = &mut open.as_mut().ok_or_else(closed)?.subscribers;
        let new = || Subscriber::new(Arc::clone(&self.target));
        Ok(subscribers.get((id, ()), Subscriber::is_live, new))
    }

    /// The subscriber of the calling runtime, if it has one.
    pub(in super::super) fn present_subscriber(&self) -> Option<Arc<Subscriber>> {
        let id = runtime::id("redis").ok()?;
        self.open.lock().as_ref()?.subscribers.present(&(id, ()))
    }

    /// Drops every connection; later requests fail. A connection that is just being made is dropped when it is made.
    pub(in super::super) fn close(&self) {
        self.open.lock().take();
    }
}

pub(in super::super) fn closed() -> Error {
    Error::closed("the redis store was closed; nothing was sent")
}
