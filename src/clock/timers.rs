//! [`Timers`]: the sleeps on a manual clock, in the order in which they end.

use std::collections::BTreeMap;
use std::task::Waker;

/// When a sleep ends, and the order in which equal sleeps came.
pub(super) type SleepOrder = (u64, u64);

/// The sleeps that have not ended. Those that end together are woken in the order in which they
/// came.
#[derive(Debug, Default)]
pub(super) struct Timers {
    waiting: BTreeMap<SleepOrder, Waker>,
    came: u64,
}

impl Timers {
    /// A place for a sleep that ends at `end`.
    pub(super) fn place(&mut self, end: u64) -> SleepOrder {
        self.came += 1;
        (end, self.came)
    }

    pub(super) fn wait(&mut self, place: SleepOrder, waker: &Waker) {
        match self.waiting.get_mut(&place) {
            Some(known) => known.clone_from(waker),
            None => drop(self.waiting.insert(place, waker.clone())),
        }
    }

    pub(super) fn leave(&mut self, place: SleepOrder) {
        self.waiting.remove(&place);
    }

    /// The end of the next sleep.
    pub(super) fn next(&self) -> Option<u64> {
        Some(self.waiting.first_key_value()?.0.0)
    }

    /// Takes out the sleeps that end by `now`.
    pub(super) fn due(&mut self, now: u64) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            due.push(first.remove());
        }
        due
    }
}
