//! The clocks that leases are compared with: the system's, or one that a test moves.
//!
//! A lease has *one deadline word per clock*, each computed from that clock's own reading before
//! the request was sent, and it is live only while every clock that is read is before its own word.
//! So an additional clock can only end a lease earlier, and two clocks are never compared with each
//! other for a deadline.
//!
//! | lane | on Linux | counts suspend | slewed | read by |
//! |---|---|---|---|---|
//! | [`ClockKind::Fast`] | quanta (TSC) | no | no | entry, `tx.check()` |
//! | [`ClockKind::Boot`] | `CLOCK_BOOTTIME` | yes | yes | commit, and after it |
//! | [`ClockKind::Raw`] | `CLOCK_MONOTONIC_RAW` | no | no | commit, and after it |
//!
//! The fast clock is calibrated at start and may run slow, which is the unsafe direction. Therefore
//! it never judges a commit alone, and each heartbeat audits it against the others. If the audit
//! finds it slow, fast reads use the boot clock from then on.
//!
//! On systems other than Linux both strict clocks are the system's monotonic clock that counts
//! sleep.

mod audit;
pub(crate) mod fork;
#[cfg(feature = "testing")]
mod manual;
#[cfg(feature = "testing")]
pub(crate) mod probe;
mod system;
#[cfg(feature = "testing")]
mod timers;
mod wall;

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

pub(crate) use audit::Audit;
#[cfg(feature = "testing")]
pub use manual::ManualClock;

use crate::model::error::Error;
use crate::model::span::nanos;
use system::SystemClock;
pub(crate) use wall::wall_millis;

/// One of the clocks that measure a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ClockKind {
    /// The cheapest clock: quanta.
    Fast = 0,
    /// The clock that counts suspend: `CLOCK_BOOTTIME`.
    Boot = 1,
    /// The clock that is never slewed: `CLOCK_MONOTONIC_RAW`.
    Raw = 2,
}

impl ClockKind {
    /// All clocks, in the order of a [`Stamp`].
    pub const ALL: [Self; 3] = [Self::Fast, Self::Boot, Self::Raw];
}

/// One reading of one clock, in nanoseconds since an instant of that clock's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    /// The clock that was read.
    pub(crate) lane: ClockKind,
    /// Nanoseconds since that clock's own zero.
    pub(crate) nanos: u64,
}

/// One reading of every clock, taken together; deadlines are computed from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    nanos: [u64; 3],
}

impl Stamp {
    /// A stamp from readings in the order of [`ClockKind::ALL`], in nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: [u64; 3]) -> Self {
        Self { nanos }
    }

    /// The reading of one clock, in nanoseconds since that clock's own zero.
    #[must_use]
    pub const fn on(&self, lane: ClockKind) -> u64 {
        self.nanos[lane as usize]
    }

    /// The time from `earlier` to this stamp by the boot clock; zero if `earlier` is not earlier.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        Duration::from_nanos(
            self.on(ClockKind::Boot)
                .saturating_sub(earlier.on(ClockKind::Boot)),
        )
    }

    /// The stamp that is `span` later on every clock.
    #[must_use]
    pub fn plus(&self, span: Duration) -> Self {
        let span = nanos(span);
        Self {
            nanos: self.nanos.map(|nanos| nanos.saturating_add(span)),
        }
    }
}

/// Where leasehold reads the time. Cloning is cheap; all clones read the same clocks.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(&'static SystemClock),
    #[cfg(feature = "testing")]
    Manual(ManualClock),
}

impl Clock {
    /// The machine's clocks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if a fork of this process could
    /// not be noticed.
    pub fn system() -> Result<Self, Error> {
        fork::watch()?;
        Ok(Self(Source::System(SystemClock::shared())))
    }

    /// The fast read: entry of a run, `tx.check()`. One clock.
    #[inline]
    pub(crate) fn fast(&self) -> Reading {
        match &self.0 {
            Source::System(clock) => clock.fast(),
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.fast(),
        }
    }

    /// The strict read: commit, and after it. The boot clock and the raw clock, in this order.
    #[inline]
    pub(crate) fn strict(&self) -> [Reading; 2] {
        match &self.0 {
            Source::System(clock) => clock.strict(),
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.strict(),
        }
    }

    /// Every clock at once: read this *before* a request is sent.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        match &self.0 {
            Source::System(clock) => clock.stamp(),
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.stamp(),
        }
    }

    /// Stops using the fast clock: fast reads use the boot clock from now on. Logged once.
    pub(crate) fn distrust_fast(&self) {
        let first = match &self.0 {
            Source::System(clock) => clock.distrust_fast(),
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.distrust_fast(),
        };
        if first {
            tracing::warn!(
                target: "leasehold::clock", "the fast clock is slow or has stopped; fast checks read the boot clock from now on"
            );
        }
    }

    /// Whether the caller may sleep: it is in a tokio runtime, and that has the timers which this
    /// clock needs.
    pub(crate) fn has_timers(&self) -> bool {
        match &self.0 {
            Source::System(_) => SystemClock::has_timers(),
            #[cfg(feature = "testing")]
            Source::Manual(_) => tokio::runtime::Handle::try_current().is_ok(),
        }
    }

    /// Completes once `span` has passed by the boot clock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost with a dropped sleep.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.after(span)).await;
    }

    /// Completes once the boot clock shows `end`, in nanoseconds. A caller that plans ahead says
    /// when to wake, not how long to sleep: what passes between the plan and the sleep would be
    /// added to it.
    pub(crate) async fn sleep_until(&self, end: u64) {
        match &self.0 {
            Source::System(clock) => clock.sleep_until(end).await,
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.sleep_until(end).await,
        }
    }

    /// What the boot clock shows when `span` has passed.
    fn after(&self, span: Duration) -> u64 {
        let span = nanos(span);
        self.boot().saturating_add(span)
    }

    /// Runs `future` for at most `span`, counted from the first poll; `None` if it had not
    /// completed by then. An answer that has arrived when the time is over counts.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `future`.
    pub async fn timeout<F: Future>(&self, span: Duration, future: F) -> Option<F::Output> {
        self.limited(self.after(span), future).await
    }

    /// Runs `future` until `end`; otherwise as [`timeout`](Self::timeout).
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `future`.
    pub async fn until<F: Future>(&self, end: Stamp, future: F) -> Option<F::Output> {
        self.limited(end.on(ClockKind::Boot), future).await
    }

    /// The wall clock, in microseconds since 1970. It may jump: for nothing but a number that
    /// should be larger than before.
    pub(crate) fn wall_micros(&self) -> u64 {
        match &self.0 {
            Source::System(_) => wall::wall_micros(),
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.stamp().on(ClockKind::Boot) / 1_000,
        }
    }

    /// The reading of the boot clock: one clock read; a stamp takes three.
    pub(crate) fn boot(&self) -> u64 {
        match &self.0 {
            Source::System(_) => SystemClock::boot(),
            #[cfg(feature = "testing")]
            Source::Manual(clock) => clock.stamp().on(ClockKind::Boot),
        }
    }

    async fn limited<F: Future>(&self, end: u64, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut sleep = pin!(None);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // Made after the first poll: that poll may take any time and often completes the
            // future.
            if sleep.is_none() {
                sleep.set(Some(self.sleep_until(end)));
            }
            match sleep.as_mut().as_pin_mut() {
                Some(sleep) => sleep.poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

#[cfg(feature = "testing")]
impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Source::Manual(clock))
    }
}
