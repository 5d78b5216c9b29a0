//! [`Waiters`]: the subscriptions of one key in this process.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::queue::Wakes;
use crate::model::holder::OwnerToken;
use crate::model::room::make_room;
use crate::store::Hint;

/// The hints that were given out, by claim.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    hints: HashMap<OwnerToken, oneshot::Sender<()>>,
}

/// A hint that resolves when this is dropped: outside of the store's lock, which whoever wakes up
/// needs first.
#[derive(Debug)]
#[must_use = "the waiter is woken at once, perhaps under a lock"]
pub(crate) struct Woken(
    #[expect(dead_code, reason = "dropping it is what wakes")] oneshot::Sender<()>,
);

impl Waiters {
    /// A hint for a claim. An earlier hint of the same claim resolves.
    pub(crate) fn subscribe(&mut self, owner: OwnerToken) -> Hint {
        make_room(&mut self.hints, |hint| !hint.is_closed());
        let (wake, woken) = oneshot::channel();
        self.hints.insert(owner, wake);
        Hint::new(async move {
            // A sender that was dropped wakes too: a hint may be early.
            let _ = woken.await;
        })
    }

    /// Takes out the hints of the claims that were granted by a handover; all if the key is free,
    /// or a rest begins.
    pub(crate) fn take(&mut self, wakes: &Wakes) -> Vec<Woken> {
        if wakes.is_free || wakes.at_rest.is_some() {
            return std::mem::take(&mut self.hints)
                .into_values()
                .map(Woken)
                .collect();
        }
        let granted = wakes.handed_over.iter();
        granted
            .filter_map(|(owner, _)| self.take_one(owner))
            .collect()
    }

    /// Takes out the hint of one claim.
    pub(crate) fn take_one(&mut self, owner: &OwnerToken) -> Option<Woken> {
        self.hints.remove(owner).map(Woken)
    }

    /// Whether somebody waits for the hint of a claim.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_awaited(&self, owner: &OwnerToken) -> bool {
        (self.hints.get(owner)).is_some_and(|hint| !hint.is_closed())
    }

    /// Whether nobody waits for a hint.
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.values().all(oneshot::Sender::is_closed)
    }
}
