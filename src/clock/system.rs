//! The machine's clocks.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{ClockKind, Reading, Stamp};

/// Readings start here, so no live deadline is ever 0, the word for "lost".
const ZERO: u64 = 1_000_000_000;

pub(super) struct SystemClock {
    quanta: quanta::Clock,
    quanta_base: u64,
    fast_is_trusted: AtomicBool,
}

static SHARED: LazyLock<SystemClock> = LazyLock::new(|| {
    let quanta = quanta::Clock::new();
    SystemClock {
        quanta_base: quanta.raw(),
        quanta,
        fast_is_trusted: AtomicBool::new(true),
    }
});

impl SystemClock {
    pub(super) fn shared() -> &'static Self {
        &SHARED
    }

    #[inline]
    pub(super) fn fast(&self) -> Reading {
        if self.fast_is_trusted.load(Ordering::Relaxed) {
            Reading {
                lane: ClockKind::Fast,
                nanos: self.quanta_nanos(),
            }
        } else {
            Reading {
                lane: ClockKind::Boot,
                nanos: boot_nanos(),
            }
        }
    }

    #[inline]
    pub(super) fn strict(&self) -> [Reading; 2] {
        [
            Reading {
                lane: ClockKind::Boot,
                nanos: boot_nanos(),
            },
            Reading {
                lane: ClockKind::Raw,
                nanos: raw_nanos(),
            },
        ]
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp::from_nanos([self.quanta_nanos(), boot_nanos(), raw_nanos()])
    }

    pub(super) fn boot() -> u64 {
        boot_nanos()
    }

    /// True for the first caller.
    pub(super) fn distrust_fast(&self) -> bool {
        self.fast_is_trusted.swap(false, Ordering::Relaxed)
    }

    /// tokio says only by a panic that a runtime has no timers, and prints its message.
    #[allow(clippy::disallowed_methods, reason = "this is the one home of clocks")]
    pub(super) fn has_timers() -> bool {
        let sleep = || drop(tokio::time::sleep(Duration::ZERO));
        tokio::runtime::Handle::try_current().is_ok() && std::panic::catch_unwind(sleep).is_ok()
    }

    #[inline]
    fn quanta_nanos(&self) -> u64 {
        ZERO + self
            .quanta
            .delta_as_nanos(self.quanta_base, self.quanta.raw())
    }

    /// Ends when the boot clock has reached the time. tokio's timer stops while the machine sleeps,
    /// and fires early if a test has paused tokio's clock.
    #[allow(clippy::disallowed_methods, reason = "this is the one home of clocks")]
    pub(super) async fn sleep_until(&self, end: u64) {
        loop {
            let left = Duration::from_nanos(end.saturating_sub(boot_nanos()));
            tokio::time::sleep(left).await;
            if boot_nanos() >= end {
                return;
            }
        }
    }
}

impl std::fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemClock")
            .field("fast_is_trusted", &self.fast_is_trusted)
            .finish()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod lanes {
    use rustix::time::{ClockId, clock_gettime};

    #[inline]
    pub(super) fn boot_nanos() -> u64 {
        nanos(ClockId::Boottime)
    }

    #[inline]
    pub(super) fn raw_nanos() -> u64 {
        nanos(ClockId::MonotonicRaw)
    }

    #[inline]
    fn nanos(id: ClockId) -> u64 {
        let time = clock_gettime(id);
        super::ZERO + time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
mod lanes {
    use rustix::time::{ClockId, clock_gettime};

    /// `CLOCK_MONOTONIC` counts sleep on Apple's systems, where `Instant` does not: it reads
    /// `CLOCK_UPTIME_RAW` there. Elsewhere `Instant` reads this clock, too.
    pub(super) fn boot_nanos() -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        super::ZERO + time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    pub(super) fn raw_nanos() -> u64 {
        boot_nanos()
    }
}

#[cfg(not(unix))]
mod lanes {
    use std::sync::LazyLock;
    use std::time::Instant;

    #[allow(clippy::disallowed_methods, reason = "this is the one home of clocks")]
    static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// `Instant` counts sleep on Windows: it reads the performance counter.
    #[allow(clippy::disallowed_methods, reason = "this is the one home of clocks")]
    pub(super) fn boot_nanos() -> u64 {
        let base = *BASE;
        super::ZERO + u64::try_from((Instant::now() - base).as_nanos()).unwrap_or(u64::MAX / 2)
    }

    pub(super) fn raw_nanos() -> u64 {
        boot_nanos()
    }
}

use lanes::{boot_nanos, raw_nanos};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_moves_forward_from_above_zero() {
        let clock = SystemClock::shared();
        let before = clock.stamp();
        let mut after = clock.stamp();
        while after.on(ClockKind::Raw) == before.on(ClockKind::Raw) {
            after = clock.stamp();
        }
        for lane in ClockKind::ALL {
            assert!(before.on(lane) >= ZERO, "{lane:?}");
            assert!(after.on(lane) >= before.on(lane), "{lane:?}");
        }
    }

    #[test]
    fn a_distrusted_fast_lane_is_not_read_again() {
        let quanta = quanta::Clock::new();
        let clock = SystemClock {
            quanta_base: quanta.raw(),
            quanta,
            fast_is_trusted: AtomicBool::new(true),
        };
        assert_eq!(clock.fast().lane, ClockKind::Fast);
        assert!(clock.distrust_fast());
        assert!(!clock.distrust_fast());
        assert_eq!(clock.fast().lane, ClockKind::Boot);
    }
}
