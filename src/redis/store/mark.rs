//! [`Mark`]: the answer of a server that was judged, and may grant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// When the newest request was sent that showed its server to be what it was, in nanoseconds
    /// of the clock that counts a suspend.
    proven: AtomicU64,
}

impl Mark {
    pub(super) fn new(text: impl Into<String>, micros: u64, at: Stamp) -> Self {
        Self {
            text: text.into(),
            micros,
            proven: AtomicU64::new(0),
            at,
        }
    }

    /// A request that was sent then was executed by a server that was what it is since it was
    /// judged.
    pub(super) fn proven(&self, sent: &Stamp) {
        self.proven
            .fetch_max(sent.on(ClockKind::Boot), Ordering::Relaxed);
    }

    /// For how long, at `now`, its server may have been another.
    pub(super) fn unproven(&self, now: &Stamp) -> Duration {
        let proven = self.proven.load(Ordering::Relaxed);
        Duration::from_nanos(now.on(ClockKind::Boot).saturating_sub(proven))
    }

    /// About the server's time at `now`, in milliseconds. No lease is measured by it.
    pub(super) fn server_millis(&self, now: &Stamp) -> u128 {
        u128::from(self.micros / 1_000) + now.since(&self.at).as_millis()
    }
}
