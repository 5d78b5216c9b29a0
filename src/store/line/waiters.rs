//! [`Waiters`]: the subscriptions of one key in this process.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::oneshot;

use super::queue::Wakes;
use crate::model::holder::OwnerToken;
use crate::model::room::make_room;
use crate::store::Hint;

/// The hints that were given out, by claim.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// With the time at which the claim has asked last.
    hints: HashMap<OwnerToken, (oneshot::Sender<()>, Duration)>,
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
    pub(crate) fn subscribe(&mut self, owner: OwnerToken, now: Duration) -> Hint {
        make_room(&mut self.hints, |(hint, _)| !hint.is_closed());
        let (wake, woken) = oneshot::channel();
        self.hints.insert(owner, (wake, now));
        Hint::new(async move {
            // A sender that was dropped wakes too: a hint may be early.
            let _ = woken.await;
        })
    }

    /// Takes out the hints of the claims that were granted by a handover; all if the key is free,
    /// or a rest begins.
    pub(crate) fn take(&mut self, wakes: &Wakes) -> Vec<Woken> {
        if wakes.is_free || wakes.at_rest.is_some() {
            return self.take_all();
        }
        let granted = wakes.handed_over.iter();
        granted
            .filter_map(|(owner, _)| self.take_one(owner))
            .collect()
    }

    /// Takes out all hints.
    pub(crate) fn take_all(&mut self) -> Vec<Woken> {
        let hints = std::mem::take(&mut self.hints).into_values();
        hints.map(|(wake, _)| Woken(wake)).collect()
    }

    /// Takes out the hint of one claim.
    pub(crate) fn take_one(&mut self, owner: &OwnerToken) -> Option<Woken> {
        let (wake, _) = self.hints.remove(owner)?;
        Some(Woken(wake))
    }

    /// Notes that a claim asks.
    #[cfg(target_os = "linux")]
    pub(crate) fn asks(&mut self, owner: &OwnerToken, now: Duration) {
        if let Some((_, last)) = self.hints.get_mut(owner) {
            *last = now;
        }
    }

    /// When a claim has asked last, if somebody waits for its hint.
    #[cfg(target_os = "linux")]
    pub(crate) fn last_asked(&self, owner: &OwnerToken) -> Option<Duration> {
        let (hint, last) = self.hints.get(owner)?;
        (!hint.is_closed()).then_some(*last)
    }

    /// Whether nobody waits for a hint.
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.values().all(|(hint, _)| hint.is_closed())
    }
}
