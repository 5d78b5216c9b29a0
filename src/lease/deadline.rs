//! The arithmetic of I1: how long a grant may be acted upon.

use std::time::Duration;

use crate::clock::{Lane, Stamp};

/// Our own clocks run at most this much slow, in parts per million (RFC 5905 takes the same bound for its clocks).
pub const LOCAL_DRIFT_PPM: u32 = 500;

/// The coarsest unit in which a store counts a TTL.
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// What of a grant is given up for clocks that differ, besides [`LOCAL_DRIFT_PPM`] and [`GRANULARITY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The store's clock runs at most this much fast, in parts per million.
    pub server_drift_ppm: u32,
    /// How much earlier the lease ends for us than for the store.
    pub margin: Duration,
}

impl Terms {
    /// The part of a granted TTL that may be acted upon (I1), rounded down; zero if nothing is left:
    ///
    /// `ttl * (1 - 500 ppm) / (1 + server_drift) - granularity - margin`
    #[must_use]
    pub fn usable(&self, ttl: Duration) -> Duration {
        let kept = u128::from(1_000_000 - LOCAL_DRIFT_PPM);
        let whole = 1_000_000 + u128::from(self.server_drift_ppm);
        // A duration has less than 2^94 nanoseconds, so that this product stays below 2^114.
        let scaled = ttl.as_nanos() * kept / whole;
        let usable = scaled.saturating_sub(GRANULARITY.as_nanos() + self.margin.as_nanos());
        Duration::from_nanos(u64::try_from(usable).unwrap_or(u64::MAX))
    }

    /// One deadline for each clock, from that clock's own reading before the request left. Saturates, which is earlier
    /// than what it stands for.
    pub(crate) fn deadlines(&self, sent_at: &Stamp, ttl: Duration) -> [u64; 3] {
        let ends = sent_at.plus(self.usable(ttl));
        Lane::ALL.map(|lane| ends.on(lane))
    }
}
