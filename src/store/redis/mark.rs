//! [`Mark`]: what a server tells that was judged, and may grant.

use crate::clock::{ClockKind, Stamp};

/// What a server answered that may grant.
#[derive(Debug)]
pub(super) struct Mark {
    /// The text of the marker.
    pub(super) text: String,
    /// The server's time when it was judged, in microseconds.
    micros: u64,
    /// Our time then.
    at: Stamp,
}

impl Mark {
    pub(super) fn new(text: impl Into<String>, micros: u64, at: Stamp) -> Self {
        let text = text.into();
        Self { text, micros, at }
    }

    /// When it was judged, in nanoseconds of the clock that counts a suspend.
    pub(super) fn boot(&self) -> u64 {
        self.at.on(ClockKind::Boot)
    }

    /// About the server's time at `now`, in milliseconds. No lease is measured by it.
    pub(super) fn server_millis(&self, now: &Stamp) -> u128 {
        u128::from(self.micros / 1_000) + now.since(&self.at).as_millis()
    }
}
