//! [`PerRuntime`]: connections of one sort, by the runtime that drives them.
//!
//! A connection is driven by the runtime that made it, and dies with it. So each calling runtime has its own: a runtime that
//! ends closes only its own connections, and a busy one cannot delay another's heartbeats.

use std::sync::Arc;

use tokio::runtime::Id;

/// Connections by runtime and purpose. A process has a few runtimes, so a search through these is faster than a hash.
#[derive(Debug)]
pub(crate) struct PerRuntime<P, C>(Vec<((Id, P), Arc<C>)>);

impl<P, C> Default for PerRuntime<P, C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: PartialEq, C> PerRuntime<P, C> {
    /// The connection of a runtime for a purpose; `new` if it has none. `is_live` says which of the others to keep.
    pub(crate) fn get(
        &mut self,
        wanted: (Id, P),
        is_live: impl Fn(&C) -> bool,
        new: impl FnOnce() -> C,
    ) -> Arc<C> {
        if let Some(ours) = self.present(&wanted) {
            return ours;
        }
        // A new runtime is the moment to forget those that ended.
        self.0
            .retain(|(_, one)| is_live(one) || Arc::strong_count(one) > 1);
        let new = Arc::new(new());
        self.0.push((wanted, Arc::clone(&new)));
        new
    }

    /// The connection of a runtime for a purpose, if it has one.
    pub(crate) fn present(&self, wanted: &(Id, P)) -> Option<Arc<C>> {
        let ours = self.0.iter().find(|(of, _)| of == wanted);
        ours.map(|(_, ours)| Arc::clone(ours))
    }
}
