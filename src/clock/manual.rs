//! A clock that tests move by hand.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::timers::{SleepOrder, Timers};
use super::{ClockKind, Reading, Stamp};
use crate::model::span::nanos;

/// A clock that moves only when a test advances it (feature `testing`). Cloning is cheap; all
/// clones are the same clock.
///
/// Sleeps on it complete as soon as the boot lane has been moved far enough, and in the order of
/// their ends.
#[derive(Clone)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

struct Inner {
    /// Together behind one lock: a stamp that sees one clock moved and another not yet is a clock
    /// fault to its reader.
    lanes: Mutex<[u64; 3]>,
    fast_is_trusted: AtomicBool,
    timers: Mutex<Timers>,
    /// How often a lease was looked at by this clock.
    looks: AtomicU64,
    /// Before which look the clock jumps, counted from one; zero for none.
    jumps_before: AtomicU64,
}

/// How far the clock jumps: past every lease.
const JUMP: Duration = Duration::from_secs(1_000_000);

impl ManualClock {
    /// A clock that shows an arbitrary time on every lane.
    #[must_use]
    pub fn new() -> Self {
        let lanes = Mutex::new([1_000, 2_000, 3_000].map(|seconds| seconds * 1_000_000_000));
        Self {
            inner: Arc::new(Inner {
                lanes,
                fast_is_trusted: AtomicBool::new(true),
                timers: Mutex::default(),
                looks: AtomicU64::new(0),
                jumps_before: AtomicU64::new(0),
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
    }

    /// How far the boot lane has to be advanced until the next sleep completes; `None` if nobody
    /// sleeps. For a test that moves the clock from event to event.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        let next = self.inner.timers.lock().next()?;
        Some(Duration::from_nanos(next.saturating_sub(self.boot())))
    }

    fn step(&self, lanes: &[ClockKind], span: Duration) {
        {
            let mut shown = self.inner.lanes.lock();
            for lane in lanes {
                let lane = &mut shown[*lane as usize];
                *lane = lane.saturating_add(nanos(span));
            }
        }
        let due = self.inner.timers.lock().due(self.boot());
        due.into_iter().for_each(Waker::wake);
    }

    fn boot(&self) -> u64 {
        self.inner.lanes.lock()[ClockKind::Boot as usize]
    }

    fn read(&self, lane: ClockKind) -> Reading {
        Reading {
            lane,
            nanos: self.stamp().on(lane),
        }
    }

    /// How often a lease was looked at.
    pub(crate) fn looks(&self) -> u64 {
        self.inner.looks.load(Ordering::SeqCst)
    }

    /// Jumps past every deadline right before this look at a lease, counted from one.
    pub(crate) fn jump_before(&self, look: u64) {
        self.inner.jumps_before.store(look, Ordering::SeqCst);
    }

    fn look(&self) {
        let look = self.inner.looks.fetch_add(1, Ordering::SeqCst) + 1;
        if look == self.inner.jumps_before.load(Ordering::SeqCst) {
            self.advance(JUMP);
        }
    }

    pub(super) fn fast(&self) -> Reading {
        self.look();
        let trusted = self.inner.fast_is_trusted.load(Ordering::Relaxed);
        self.read(if trusted {
            ClockKind::Fast
        } else {
            ClockKind::Boot
        })
    }

    pub(super) fn strict(&self) -> [Reading; 2] {
        self.look();
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

    pub(super) async fn sleep_until(&self, end: u64) {
        let mut sleep = Sleep {
            clock: self,
            end,
            place: None,
        };
        poll_fn(|cx| sleep.poll(cx.waker())).await;
    }
}

/// A sleep that is being awaited. Dropped, it leaves the timers.
struct Sleep<'a> {
    clock: &'a ManualClock,
    end: u64,
    place: Option<SleepOrder>,
}

impl Sleep<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        // The lock is held from the look to the wait, so that a step in between is not missed.
        let mut timers = self.clock.inner.timers.lock();
        if self.clock.boot() >= self.end {
            return Poll::Ready(());
        }
        let place = *self.place.get_or_insert_with(|| timers.place(self.end));
        timers.wait(place, waker);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.clock.inner.timers.lock().leave(place);
        }
    }
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
    use futures_util::FutureExt;
    use futures_util::stream::{FuturesUnordered, StreamExt};

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn sleeps_end_in_the_order_of_their_ends_and_then_of_their_coming() {
        let clock = ManualClock::new();
        let mut sleeps: FuturesUnordered<_> = [("c", 3), ("a", 1), ("d", 3), ("b", 2)]
            .map(|(name, seconds)| {
                let clock = clock.clone();
                async move {
                    Clock::from(clock.clone())
                        .sleep(Duration::from_secs(seconds))
                        .await;
                    name
                }
            })
            .into_iter()
            .collect();
        assert!(sleeps.next().now_or_never().is_none());
        // They were polled in some order; that is the order of their coming.
        assert_eq!(clock.until_next(), Some(Duration::from_secs(1)));
        clock.advance(Duration::from_secs(2));
        let ended = std::iter::from_fn(|| sleeps.next().now_or_never().flatten());
        assert_eq!(ended.collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(clock.until_next(), Some(Duration::from_secs(1)));
    }

    /// What passes between a plan and its sleep is not slept again.
    #[test]
    fn a_sleep_until_a_time_that_has_passed_is_over() {
        let clock = ManualClock::new();
        let end = clock.boot() + nanos(Duration::from_secs(2));
        clock.advance(Duration::from_secs(2));
        assert!(clock.sleep_until(end).now_or_never().is_some());
        assert!(clock.sleep_until(end + 1).now_or_never().is_none());
    }

    #[test]
    fn a_dropped_sleep_leaves_nothing_behind() {
        let clock = ManualClock::new();
        let clock_of_all = Clock::from(clock.clone());
        let sleep = clock_of_all.sleep(Duration::from_secs(1));
        assert!(sleep.now_or_never().is_none());
        assert_eq!(clock.until_next(), None);
    }

    /// Two lanes that are read apart would differ by a step now and then, which an audit takes for
    /// a fault.
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
