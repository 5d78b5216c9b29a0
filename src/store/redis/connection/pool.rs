//! [`ConnectionPool`]: the connections of a store, by runtime and purpose.
//!
//! A connection is driven by the runtime that made it, and dies with it. So each calling runtime has its own: a runtime
//! that ends closes only its own connections, and a busy one cannot delay another's heartbeats.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Id;

use super::reconnecting::Connection;
use super::subscriber::Subscriber;
use super::target::Target;
use crate::model::error::Error;
use crate::store::dial::runtime;

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

/// A process has a few runtimes, so a search through these is faster than a hash.
#[derive(Debug, Default)]
struct Open {
    connections: Vec<((Id, Purpose), Arc<Connection>)>,
    subscribers: Vec<(Id, Arc<Subscriber>)>,
}

fn find<K: PartialEq, V>(entries: &[(K, Arc<V>)], wanted: &K) -> Option<Arc<V>> {
    let mut entries = entries.iter();
    entries
        .find(|(key, _)| key == wanted)
        .map(|(_, value)| Arc::clone(value))
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
        if let Some(connection) = find(connections, &(id, purpose)) {
            return Ok(connection);
        }
        // A new runtime is the moment to forget those that ended.
        connections
            .retain(|(_, connection)| connection.is_live() || Arc::strong_count(connection) > 1);
        let connection = Arc::new(Connection::new(Arc::clone(&self.target)));
        connections.push(((id, purpose), Arc::clone(&connection)));
        Ok(connection)
    }

    /// The subscriber of the calling runtime.
    pub(in super::super) fn subscriber(&self) -> Result<Arc<Subscriber>, Error> {
        let id = runtime::id("redis")?;
        let mut open = self.open.lock();
        let subscribers = &mut open.as_mut().ok_or_else(closed)?.subscribers;
        if let Some(subscriber) = find(subscribers, &id) {
            return Ok(subscriber);
        }
        subscribers
            .retain(|(_, subscriber)| subscriber.is_live() || Arc::strong_count(subscriber) > 1);
        let subscriber = Arc::new(Subscriber::new(Arc::clone(&self.target)));
        subscribers.push((id, Arc::clone(&subscriber)));
        Ok(subscriber)
    }

    /// The subscriber of the calling runtime, if it has one.
    pub(in super::super) fn present_subscriber(&self) -> Option<Arc<Subscriber>> {
        let id = runtime::id("redis").ok()?;
        find(&self.open.lock().as_ref()?.subscribers, &id)
    }

    /// Drops every connection; later requests fail. A connection that is just being made is dropped when it is made.
    pub(in super::super) fn close(&self) {
        self.open.lock().take();
    }
}

pub(in super::super) fn closed() -> Error {
    Error::closed("the redis store was closed; nothing was sent")
}
