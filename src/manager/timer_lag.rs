//! [`TimerLag`]: how late the manager's thread comes to its own timers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::span::{in_millis, nanos};

/// The sign of a starved machine: a thread that comes late to its timers renews late too.
#[derive(Debug, Default)]
pub(super) struct TimerLag {
    last: AtomicU64,
    worst: AtomicU64,
}

impl TimerLag {
    pub(super) fn last(&self) -> Duration {
        Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    pub(super) fn worst(&self) -> Duration {
        Duration::from_nanos(self.worst.load(Ordering::Relaxed))
    }

    /// Notes one lag, and warns if it is the worst so far and longer than `tolerable`.
    pub(super) fn note(&self, lag: Duration, tolerable: Duration) {
        let nanos = nanos(lag);
        self.last.store(nanos, Ordering::Relaxed);
        let worst = self.worst.fetch_max(nanos, Ordering::Relaxed);
        if nanos > worst && lag > tolerable {
            tracing::warn!(
                target: "leasehold::manager", lag = ?in_millis(lag),
                "the lock manager's thread is starved: heartbeats are sent late"
            );
        }
    }
}
