//! [`Waiters`]: the subscriptions of one key in this process.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::queue::Wakes;
use crate::model::holder::OwnerToken;
use crate::store::Hint;

/// The hints that were given out, by claim.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    hints: HashMap<OwnerToken, oneshot::Sender<()>>,
}

impl Waiters {
    /// A hint for a claim. An earlier hint of the same claim resolves.
    pub(crate) fn subscribe(&mut self, owner: OwnerToken) -> Hint {
        if self.hints.len() == self.hints.capacity() {
            self.hints.retain(|_, hint| !hint.is_closed());
        }
        let (wake, woken) = oneshot::channel();
        self.hints.insert(owner, wake);
        Hint::new(async move {
            // A sender that was dropped wakes too: a hint may be early.
            let _ = woken.await;
        })
    }

    /// Wakes the claims that were granted by a handover; everybody if the key is free.
    pub(crate) fn wake(&mut self, wakes: &Wakes) {
        if wakes.is_free {
            self.hints.clear();
        }
        for (owner, _) in &wakes.handed_over {
            self.hints.remove(owner);
        }
    }

    /// Takes out the hint of one claim, which resolves when this is dropped.
    #[cfg(all(feature = "file", target_os = "linux"))]
    pub(crate) fn take(&mut self, owner: &OwnerToken) -> Option<oneshot::Sender<()>> {
        self.hints.remove(owner)
    }

    /// Whether nobody waits for a hint.
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.values().all(oneshot::Sender::is_closed)
    }
}
