//! The arithmetic of I1: for how long the holder may act on a grant.

use std::time::Duration;

use crate::clock::{ClockKind, Stamp};

/// Our own clocks run at most this much slow, in parts per million (RFC 5905 takes the same bound
/// for its clocks).
pub(super) const LOCAL_DRIFT_PPM: u32 = 500;

/// The coarsest unit in which a store counts a TTL.
pub(super) const GRANULARITY: Duration = Duration::from_millis(1);

/// The part of a grant that is not used because clocks differ, besides [`LOCAL_DRIFT_PPM`] and
/// [`GRANULARITY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// The store's clock runs at most this much fast, in parts per million.
    pub(crate) server_drift_ppm: u32,
    /// How much earlier the lease ends for us than for the store.
    pub(crate) margin: Duration,
}

impl Terms {
    /// The part of a granted TTL in which the holder may act (I1), rounded down; zero if nothing is
    /// left:
    ///
    /// `ttl * (1 - 500 ppm) / (1 + server_drift) - granularity - margin`
    pub(crate) fn usable(&self, ttl: Duration) -> Duration {
        let kept = u128::from(1_000_000 - LOCAL_DRIFT_PPM);
        let whole = 1_000_000 + u128::from(self.server_drift_ppm);
        // A duration has less than 2^94 nanoseconds, so this product is below 2^114.
        let scaled = ttl.as_nanos() * kept / whole;
        let usable = scaled.saturating_sub(GRANULARITY.as_nanos() + self.margin.as_nanos());
        Duration::from_nanos(u64::try_from(usable).unwrap_or(u64::MAX))
    }

    /// One deadline for each clock, from that clock's own reading before the request was sent. It
    /// saturates, which makes the deadline earlier, never later.
    pub(super) fn deadlines(&self, sent_at: &Stamp, ttl: Duration) -> [u64; 3] {
        let ends = sent_at.plus(self.usable(ttl));
        ClockKind::ALL.map(|lane| ends.on(lane))
    }
}

/// The result of one proof: a deadline on each clock, and one reading of the clocks.
///
/// Leases with the same settings whose answers arrived together share one. So the reading may be a
/// little older than the renewal, as it is in a thread that was preempted between the two. That is
/// safe: a reader that found a lease over in the meantime has ended it, and an ended lease is not
/// renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    pub(super) now: [u64; 3],
    pub(super) deadlines: [u64; 3],
}

impl Renewal {
    /// `now` was read when the answer had arrived, `sent_at` before the proven request was sent
    /// (I1); `ttl` is what the store granted.
    pub(crate) fn new(terms: Terms, now: &Stamp, sent_at: &Stamp, ttl: Duration) -> Self {
        Self {
            now: ClockKind::ALL.map(|lane| now.on(lane)),
            deadlines: terms.deadlines(sent_at, ttl),
        }
    }

    /// The proven deadline on the boot clock.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadlines[ClockKind::Boot as usize]
    }
}
