//! [`FlowControl`]: limits how often a lock is requested, and how many are held at once.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{NotUntil, Quota, RateLimiter};
use tokio::sync::Semaphore;

use super::granted::AcquireResponse;
use super::hooks::Handler;
use super::next::Next;
use super::request::AcquireRequest;
use crate::clock::{Clock, ClockKind};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::span::{LONGEST_RATE, in_millis};

/// So many in so much time (feature `flow-control`).
#[derive(Clone, Copy, Debug)]
pub struct Rate(Quota);

impl Rate {
    /// At most `count` calls in each `span`, spread over it; up to `count` may arrive together
    /// after a pause.
    ///
    /// # Errors
    ///
    /// `Invalid` if either is zero, if the calls would come less than a nanosecond apart, or if
    /// `span` is longer than 100 years.
    pub fn per(count: u32, span: Duration) -> Result<Self, Error> {
        let quota = NonZeroU32::new(count)
            .and_then(|burst| Some(Quota::with_period(span / count)?.allow_burst(burst)));
        let rate = quota.map(Self).ok_or_else(|| {
            Error::invalid(format!(
                "a rate must be at least one call in a time that is not zero: count={count} span={span:?}"
            ))
        });
        rate?.checked()
    }

    /// Sets how many calls may arrive together after a pause. Default: the calls of one span.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is zero, or if at this rate so many calls take longer than 100 years.
    pub fn burst(self, count: u32) -> Result<Self, Error> {
        let count = NonZeroU32::new(count).ok_or_else(|| {
            Error::invalid(
                "a burst must be at least one call: count=0; leave it out for the default",
            )
        })?;
        Self(self.0.allow_burst(count)).checked()
    }

    fn checked(self) -> Result<Self, Error> {
        let burst = self.0.burst_size().get();
        match self.0.replenish_interval().checked_mul(burst) {
            Some(span) if span <= LONGEST_RATE => Ok(self),
            _ => Err(Error::invalid(format!(
                "a rate is too slow: a burst of {burst} calls takes longer than 100 years; use a shorter span or a smaller burst"
            ))),
        }
    }
}

/// A handler that limits the calls of this manager: their rate for each key, their rate in total,
/// and how many calls wait or hold at once (feature `flow-control`). It counts calls, whatever
/// their result.
///
/// A call over a limit is refused with [`Contended`](crate::ErrorKind::Contended), or, if set to
/// [wait](Self::waits), delayed within its own wait budget, and refused at once if the budget
/// cannot be enough. Nothing is shared between processes: it protects the store and the machine, it
/// is no lock.
///
/// ```
/// use std::time::Duration;
/// use leasehold::LockManager;
/// use leasehold::handler::{FlowControl, Rate};
/// use leasehold::store::MemoryStore;
///
/// let flow = FlowControl::new()
///     .per_key(Rate::per(10, Duration::from_secs(1))?)
///     .in_total(Rate::per(1_000, Duration::from_secs(1))?)
///     .at_once(200)
///     .waits();
/// let builder = LockManager::builder(MemoryStore::new()?);
/// let locks = builder.handler(flow).build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub struct FlowControl {
    per_key: Option<Rate>,
    in_total: Option<Rate>,
    at_once: Option<Arc<Semaphore>>,
    waits: bool,
    limits: OnceLock<Limits>,
}

/// The limiters, on the clock of the manager, which is known with the first call.
struct Limits {
    per_key: Option<PerKey>,
    in_total: Option<RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Duration>>>,
    ticks: Ticks,
}

struct PerKey {
    limiter: RateLimiter<Key, HashMapStateStore<Key>, Ticks, NoOpMiddleware<Duration>>,
    until_tidied: AtomicUsize,
}

/// Keys that are not requested any more are forgotten after so many calls.
const TIDY_EVERY: usize = 4096;

#[derive(Clone)]
struct Ticks(Clock);

impl governor::clock::Clock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.stamp().on(ClockKind::Boot))
    }
}

impl FlowControl {
    /// No limit at all; set those that you want. A call over a limit is refused.
    #[must_use]
    pub fn new() -> Self {
        Self {
            per_key: None,
            in_total: None,
            at_once: None,
            waits: false,
            limits: OnceLock::new(),
        }
    }

    /// Limits the calls for each key.
    #[must_use]
    pub fn per_key(mut self, rate: Rate) -> Self {
        self.per_key = Some(rate);
        self
    }

    /// Limits the calls for all keys together. A call that this refuses has counted for its key.
    #[must_use]
    pub fn in_total(mut self, rate: Rate) -> Self {
        self.in_total = Some(rate);
        self
    }

    /// Limits how many calls wait or hold at once, from behind this handler to the end of the hold.
    /// At most 2^61 - 1; 0 refuses every call.
    #[must_use]
    pub fn at_once(mut self, most: usize) -> Self {
        self.at_once = Some(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        self
    }

    /// Delays a call that is over a limit, within its wait budget. Without this it is refused.
    #[must_use]
    pub fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    fn limits(&self, clock: &Clock) -> &Limits {
        self.limits.get_or_init(|| {
            let ticks = Ticks(clock.clone());
            Limits {
                per_key: self.per_key.map(|rate| PerKey {
                    limiter: RateLimiter::hashmap_with_clock(rate.0, ticks.clone()),
                    until_tidied: AtomicUsize::new(TIDY_EVERY),
                }),
                in_total: self
                    .in_total
                    .map(|rate| RateLimiter::direct_with_clock(rate.0, ticks.clone())),
                ticks,
            }
        })
    }

    /// Asks until `check` lets the call through.
    async fn pass(
        &self,
        request: &AcquireRequest,
        limits: &Limits,
        what: &str,
        check: impl Fn() -> Result<(), NotUntil<Duration>>,
    ) -> Result<(), Error> {
        while let Err(not_until) = check() {
            let now = governor::clock::Clock::now(&limits.ticks);
            let pause = not_until.wait_time_from(now);
            if !self.waits || pause > request.remaining() {
                // Rounded up: a call at that time gets through.
                let next_in = in_millis(pause.saturating_add(Duration::from_nanos(999_999)));
                return Err(over(request, what, &format!("next_in={next_in:?}")));
            }
            request.clock().sleep(pause).await;
        }
        Ok(())
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new()
    }
}

fn over(request: &AcquireRequest, what: &str, detail: &str) -> Error {
    let key = request.key();
    Error::contended(format!(
        "flow control refused a call: limit={what} key={key} {detail}; ask less often, or raise the limit"
    ))
}

impl PerKey {
    fn check(&self, key: &Key) -> Result<(), NotUntil<Duration>> {
        if self.until_tidied.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.until_tidied.store(TIDY_EVERY, Ordering::Relaxed);
            self.limiter.retain_recent();
        }
        self.limiter.check_key(key)
    }
}

impl Handler for FlowControl {
    fn name(&self) -> &'static str {
        "flow control"
    }

    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        let limits = self.limits(request.clock());
        if let Some(per_key) = &limits.per_key {
            let check = || per_key.check(request.key());
            self.pass(request, limits, "per_key", check).await?;
        }
        if let Some(in_total) = &limits.in_total {
            self.pass(request, limits, "in_total", || in_total.check())
                .await?;
        }
        if let Some(at_once) = &self.at_once {
            let patience = if self.waits {
                request.remaining()
            } else {
                Duration::ZERO
            };
            let permit = Arc::clone(at_once).acquire_owned();
            // The semaphore is never closed.
            let permit = request.clock().timeout(patience, permit).await;
            let Some(Ok(permit)) = permit else {
                return Err(over(request, "at_once", "all are taken"));
            };
            request.attach(permit);
        }
        next.run(request).await
    }
}

impl fmt::Debug for FlowControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowControl")
            .field("per_key", &self.per_key)
            .field("in_total", &self.in_total)
            .field(
                "at_once_left",
                &self.at_once.as_ref().map(|s| s.available_permits()),
            )
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
