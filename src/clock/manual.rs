//! A clock that tests move by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{ClockKind, Reading, Stamp};

/// A clock that moves only when a test advances it (feature `test-util`). Cloning is cheap; all clones are the same clock.
///
/// Sleeps on it complete as soon as the boot lane has been moved far enough.
#[derive(Clone)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

struct Inner {
    /// Together behind one lock: a stamp that sees one lane moved and another not yet is a clock fault to its reader.
    lanes: Mutex<[u64; 3]>,
    fast_is_trusted: AtomicBool,
    moved: watch::Sender<()>,
}

impl ManualClock {
    /// A clock that shows an arbitrary time on every lane.
    #[must_use]
    pub fn new() -> Self {
        let lanes = Mutex::new([1_000, 2_000, 3_000].map(|seconds| seconds * 1_000_000_000));
        Self {
            inner: Arc::new(Inner {
                lanes,
                fast_is_trusted: AtomicBool::new(true),
                moved: watch::Sender::new(()),
            }),
        }
    }

    /// Moves every lane forward.
    pub fn advance(&self, span: Duration) {
        self.step(&ClockKind::ALL, span);
    }

    /// Moves one lane forward: a clock that jumps, or a machine that slept.
    pub fn advance_only(&self, lane: ClockKind, span: Duration) {
        self.step(&[lane], span);
    }

    /// Moves one lane backwards, which no monotonic clock may do.
    ///
    /// # Panics
    ///
    /// If the lane would go below zero.
    pub fn step_back(&self, lane: ClockKind, span: Duration) {
        {
            let shown = &mut self.inner.lanes.lock()[lane as usize];
            let before = *shown;
            assert!(
                before > nanos(span),
                "the manual clock starts 1,000 s above zero"
            );
            *shown = before - nanos(span);
        }
        self.inner.moved.send_replace(());
    }

    fn step(&self, lanes: &[ClockKind], span: Duration) {
        {
            let mut shown = self.inner.lanes.lock();
            for lane in lanes {
                let lane = &mut shown[*lane as usize];
                *lane = lane.saturating_add(nanos(span));
            }
        }
        self.inner.moved.send_replace(());
    }

    fn read(&self, lane: ClockKind) -> Reading {
        Reading {
            lane,
            nanos: self.stamp().on(lane),
        }
    }

    pub(super) fn fast(&self) -> Reading {
        let trusted = self.inner.fast_is_trusted.load(Ordering::Relaxed);
        self.read(if trusted {
            ClockKind::Fast
        } else {
            ClockKind::Boot
        })
    }

    pub(super) fn strict(&self) -> [Reading; 2] {
        let stamp = self.stamp();
        [ClockKind::Boot, ClockKind::Raw].map(|lane| Reading {
            lane,
            nanos: stamp.on(lane),
        })
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp::from_nanos(*self.inner.lanes.lock())
    }

    pub(super) fn distrust_fast(&self) -> bool {
        self.inner.fast_is_trusted.swap(false, Ordering::Relaxed)
    }

    pub(super) async fn sleep(&self, span: Duration) {
        let mut moved = self.inner.moved.subscribe();
        let end = self.read(ClockKind::Boot).nanos.saturating_add(nanos(span));
        while self.read(ClockKind::Boot).nanos < end {
            // The sender lives in `self`, so that this ends only when the clock moves.
            let _ = moved.changed().await;
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock")
            .field("lanes", &*self.inner.lanes.lock())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lanes that are read apart would differ by a step now and then, which an audit takes for a fault.
    #[test]
    fn a_stamp_never_sees_a_step_half_done() {
        let clock = ManualClock::new();
        let start = clock.stamp();
        std::thread::scope(|scope| {
            let moves = scope.spawn(|| {
                for _ in 0..20_000 {
                    clock.advance(Duration::from_secs(1));
                }
            });
            while !moves.is_finished() {
                let now = clock.stamp();
                let passed = ClockKind::ALL.map(|lane| now.on(lane) - start.on(lane));
                assert_eq!(passed, [passed[0]; 3]);
            }
        });
    }
}
