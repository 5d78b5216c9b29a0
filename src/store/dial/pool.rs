//! [`Pool`]: the connections of a store, by the runtime that drives them.
//!
//! A connection is driven by the runtime that made it, and dies with it. So each calling runtime
//! has its own: a runtime that ends closes only its own connections, and a busy one cannot delay
//! another's heartbeats.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Id;

use super::runtime;
use crate::model::error::Error;

/// A connection of one runtime, made on first use.
pub(crate) trait Pooled {
    /// What it connects to.
    type Target;

    fn new(target: Arc<Self::Target>) -> Self;

    /// Whether there is a connection, or one is being made, that its runtime still drives.
    fn is_live(&self) -> bool;
}

/// The connections of a store: for each runtime one for each purpose `P`, and a subscriber.
#[derive(Debug)]
pub(crate) struct Pool<P, C: Pooled, S> {
    /// What kind of server it is, for messages.
    server: &'static str,
    target: Arc<C::Target>,
    /// `None` once the store is closed.
    open: Mutex<Option<Open<P, C, S>>>,
}

#[derive(Debug)]
struct Open<P, C, S> {
    connections: PerRuntime<P, C>,
    subscribers: PerRuntime<(), S>,
}

/// A process has a few runtimes, so a search through these is faster than a hash.
type PerRuntime<P, C> = Vec<((Id, P), Arc<C>)>;

impl<P: PartialEq, C: Pooled, S: Pooled<Target = C::Target>> Pool<P, C, S> {
    pub(crate) fn new(server: &'static str, target: Arc<C::Target>) -> Self {
        let open = Open {
            connections: Vec::new(),
            subscribers: Vec::new(),
        };
        Self {
            server,
            target,
            open: Mutex::new(Some(open)),
        }
    }

    /// The connection of the calling runtime for a purpose.
    pub(crate) fn connection(&self, purpose: P) -> Result<Arc<C>, Error> {
        let id = runtime::id(self.server)?;
        let mut open = self.open.lock();
        let open = open.as_mut().ok_or_else(|| closed(self.server))?;
        Ok(get(&mut open.connections, (id, purpose), &self.target))
    }

    /// The subscriber of the calling runtime.
    pub(crate) fn subscriber(&self) -> Result<Arc<S>, Error> {
        let id = runtime::id(self.server)?;
        let mut open = self.open.lock();
        let open = open.as_mut().ok_or_else(|| closed(self.server))?;
        Ok(get(&mut open.subscribers, (id, ()), &self.target))
    }

    /// The subscriber of the calling runtime, if it has one.
    pub(crate) fn present_subscriber(&self) -> Option<Arc<S>> {
        let id = runtime::id(self.server).ok()?;
        present(&self.open.lock().as_ref()?.subscribers, &(id, ()))
    }

    /// Drops every connection; later requests fail. A connection that is just being made is dropped
    /// when it is made.
    pub(crate) fn close(&self) {
        self.open.lock().take();
    }
}

fn present<P: PartialEq, C>(all: &PerRuntime<P, C>, wanted: &(Id, P)) -> Option<Arc<C>> {
    let ours = all.iter().find(|(of, _)| of == wanted);
    ours.map(|(_, ours)| Arc::clone(ours))
}

/// The connection of a runtime; a new one if it has none.
fn get<P: PartialEq, C: Pooled>(
    all: &mut PerRuntime<P, C>,
    wanted: (Id, P),
    target: &Arc<C::Target>,
) -> Arc<C> {
    if let Some(ours) = present(all, &wanted) {
        return ours;
    }
    // A new runtime is the moment to forget those that ended.
    all.retain(|(_, one)| one.is_live() || Arc::strong_count(one) > 1);
    let new = Arc::new(C::new(Arc::clone(target)));
    all.push((wanted, Arc::clone(&new)));
    new
}

/// The error of a store that was closed.
pub(crate) fn closed(server: &str) -> Error {
    Error::closed(format!("the {server} store was closed; nothing was sent"))
}
