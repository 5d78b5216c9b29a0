//! A clock that tests move by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::{Lane, Reading, Stamp};

/// A clock that moves only when it is told to. Cloning is cheap; all clones are the same clock.
///
/// Sleeps on it complete as soon as the boot lane has been moved far enough.
#[derive(Clone)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

struct Inner {
    lanes: [AtomicU64; 3],
    fast_is_trusted: AtomicBool,
    moved: watch::Sender<()>,
}

impl ManualClock {
    /// A clock that stands at an arbitrary time on every lane.
    #[must_use]
    pub fn new() -> Self {
        let lanes = [1_000, 2_000, 3_000].map(|seconds| AtomicU64::new(seconds * 1_000_000_000));
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
        for lane in Lane::ALL {
            self.inner.lanes[lane as usize].fetch_add(nanos(span), Ordering::SeqCst);
        }
        self.inner.moved.send_replace(());
    }

    /// Moves one lane forward: a clock that jumps, or a machine that slept.
    pub fn advance_only(&self, lane: Lane, span: Duration) {
        self.inner.lanes[lane as usize].fetch_add(nanos(span), Ordering::SeqCst);
        self.inner.moved.send_replace(());
    }

    /// Moves one lane backwards, which no monotonic clock may do.
    ///
    /// # Panics
    ///
    /// If the lane would go below zero.
    pub fn step_back(&self, lane: Lane, span: Duration) {
        let before = self.inner.lanes[lane as usize].fetch_sub(nanos(span), Ordering::SeqCst);
        assert!(
            before > nanos(span),
            "the manual clock starts 1,000 s above zero"
        );
        self.inner.moved.send_replace(());
    }

    fn read(&self, lane: Lane) -> Reading {
        Reading {
            lane,
            nanos: self.inner.lanes[lane as usize].load(Ordering::SeqCst),
        }
    }

    pub(super) fn fast(&self) -> Reading {
        let trusted = self.inner.fast_is_trusted.load(Ordering::Relaxed);
        self.read(if trusted { Lane::Fast } else { Lane::Boot })
    }

    pub(super) fn strict(&self) -> [Reading; 2] {
        [self.read(Lane::Boot), self.read(Lane::Raw)]
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp::from_nanos(Lane::ALL.map(|lane| self.read(lane).nanos))
    }

    pub(super) fn distrust_fast(&self) -> bool {
        self.inner.fast_is_trusted.swap(false, Ordering::Relaxed)
    }

    pub(super) async fn sleep(&self, span: Duration) {
        let mut moved = self.inner.moved.subscribe();
        let end = self.read(Lane::Boot).nanos.saturating_add(nanos(span));
        while self.read(Lane::Boot).nanos < end {
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
            .field("lanes", &self.inner.lanes)
            .finish()
    }
}
