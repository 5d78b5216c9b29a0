//! [`Links`]: the connections of a store, by runtime and purpose.
//!
//! A connection is driven by the runtime that made it, and dies with it. So each calling runtime has its own: a runtime
//! that ends takes only its own along, and a busy one cannot delay another's heartbeats.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

use super::link::{Link, Target};
use super::wake::Waker;
use crate::model::error::Error;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purpose {
    /// Acquire, release, withdraw, inspect.
    Ask,
    /// Renew; with `replicas` it waits for them too.
    Heartbeat,
    /// Acquire and wait for replicas, which holds up whatever is behind it.
    Replicated,
}

/// The connections of a store.
#[derive(Debug)]
pub(crate) struct Links {
    target: Arc<Target>,
    /// `None` once the store is closed.
    open: Mutex<Option<Open>>,
}

/// A process has a few runtimes: to look through these is faster than to hash.
#[derive(Debug, Default)]
struct Open {
    links: Vec<((Id, Purpose), Arc<Link>)>,
    wakers: Vec<(Id, Arc<Waker>)>,
}

fn find<K: PartialEq, V>(entries: &[(K, Arc<V>)], wanted: &K) -> Option<Arc<V>> {
    let mut entries = entries.iter();
    entries
        .find(|(key, _)| key == wanted)
        .map(|(_, value)| Arc::clone(value))
}

impl Links {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            open: Mutex::new(Some(Open::default())),
        }
    }

    /// The link of the calling runtime for a purpose.
    pub(crate) fn link(&self, purpose: Purpose) -> Result<Arc<Link>, Error> {
        let id = runtime()?;
        let mut open = self.open.lock();
        let links = &mut open.as_mut().ok_or_else(closed)?.links;
        if let Some(link) = find(links, &(id, purpose)) {
            return Ok(link);
        }
        // A new runtime is the moment to forget those that ended.
        links.retain(|(_, link)| link.is_live() || Arc::strong_count(link) > 1);
        let link = Arc::new(Link::new(Arc::clone(&self.target)));
        links.push(((id, purpose), Arc::clone(&link)));
        Ok(link)
    }

    /// The subscriber of the calling runtime.
    pub(super) fn waker(&self) -> Result<Arc<Waker>, Error> {
        let id = runtime()?;
        let mut open = self.open.lock();
        let wakers = &mut open.as_mut().ok_or_else(closed)?.wakers;
        if let Some(waker) = find(wakers, &id) {
            return Ok(waker);
        }
        wakers.retain(|(_, waker)| waker.is_live() || Arc::strong_count(waker) > 1);
        let waker = Arc::new(Waker::new(Arc::clone(&self.target)));
        wakers.push((id, Arc::clone(&waker)));
        Ok(waker)
    }

    /// Drops every connection; nothing can be asked any more. One that is just being made is dropped when it is.
    pub(crate) fn close(&self) {
        self.open.lock().take();
    }
}

fn runtime() -> Result<Id, Error> {
    Ok(handle()?.id())
}

/// The calling runtime.
pub(super) fn handle() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        Error::invalid("redis was asked outside of a tokio runtime; connect within one, which may end afterwards, and ask from a task of it or through Lock::blocking")
    })
}

pub(super) fn closed() -> Error {
    Error::closed("the redis store was closed; nothing was asked")
}
