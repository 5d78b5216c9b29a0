//! [`Settings`]: durations, counts and limits.

#[cfg(feature = "config")]
mod serde;
mod validate;

use std::time::Duration;

use crate::lease::Terms;

/// How long leases last, how often they are renewed and how long callers wait. Plain data.
///
/// Settings are validated as a whole when a manager is built, with a message that names the field,
/// its value and what is allowed.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Settings;
///
/// // The rest is as it is by default, also what a later version adds.
/// let settings = Settings {
///     ttl: Duration::from_secs(5),
///     max_hold: Some(Duration::from_secs(60)),
///     ..Settings::default()
/// };
/// settings.validate()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// With the feature `config` they can be read and written in any format. Durations are texts such
/// as `10s` or `200ms`, missing fields have their default, and unknown fields are errors.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "config", derive(::serde::Serialize, ::serde::Deserialize))]
#[cfg_attr(feature = "config", serde(default, deny_unknown_fields))]
pub struct Settings {
    /// How long the store keeps a lock without a renewal. Default 10 s; 100 ms to
    /// [`max_ttl`](Self::max_ttl).
    ///
    /// With a shorter TTL a dead holder is noticed sooner, and a slow network loses more leases.
    /// About 0.92 of it is usable (I1).
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub ttl: Duration,
    /// The longest TTL of any client of the store. Default 30 s; up to a day. All clients of a
    /// store must use the same value: a store that forgot its locks grants nothing for this long.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub max_ttl: Duration,
    /// How much earlier a lease ends for us than for the store. Default 10 ms; less than the usable
    /// TTL.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub margin: Duration,
    /// How much faster than real time the store's clock may run, in parts per million. Default
    /// 83,334 (1/12: chrony's default maximum slew); up to 500,000. Use less only if the store's
    /// clock is known to be slewed less.
    pub server_drift_ppm: u32,
    /// How many times in a TTL a lease is renewed; more often if [`margin`](Self::margin) and drift
    /// leave less of it. Default 3; 2 to 20.
    pub renewals_per_ttl: u32,
    /// How long `acquire` waits for a busy lock. Default 45 s, which is longer than the 30 s in
    /// which a Redis server grants nothing after a restart; up to a day. There is no wait without
    /// an end.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub wait: Duration,
    /// The shortest pause between two attempts at a busy lock. Default 10 ms; 1 ms to
    /// [`max_poll_interval`](Self::max_poll_interval). When the store fails, the pause grows up to
    /// eight times that, with its random part, but not above `max_poll_interval`.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub retry_delay: Duration,
    /// The random part that is added to each pause. Default 10 ms; up to
    /// [`max_poll_interval`](Self::max_poll_interval).
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub retry_jitter: Duration,
    /// The longest pause between two attempts at a busy lock when no wake-up arrives. Default 1 s;
    /// 1 ms to a minute. A caller that is sure to be woken, behind many others in the queue of a
    /// store, asks only to keep its place there: the pause is up to this,
    /// [`retry_jitter`](Self::retry_jitter) and two [`request_timeout`](Self::request_timeout)
    /// together.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub max_poll_interval: Duration,
    /// How long one request to the store may take; a renewal at most half of the remaining lease.
    /// Default 500 ms; 1 ms to [`max_ttl`](Self::max_ttl).
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub request_timeout: Duration,
    /// The longest time that a holder keeps a lock, from its grant or its handoff; then the lease
    /// is lost. Default none; at least [`ttl`](Self::ttl).
    #[cfg_attr(feature = "config", serde(with = "serde::optional_duration"))]
    pub max_hold: Option<Duration>,
    /// How much longer the store keeps a lock than its lease lasts. The next holder waits this long
    /// after a hold that was not released. Use it for resources without a fence, so that late
    /// writes of a dead holder arrive first. Default 0; `ttl` and `lock_delay` together are at most
    /// [`max_ttl`](Self::max_ttl).
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub lock_delay: Duration,
    /// The remaining time of a lease that a commit, or a run, needs when it begins. Default 10 ms;
    /// less than the usable TTL.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub commit_budget: Duration,
    /// The remaining time of a lease that `acquire` returns; a grant with less is released and
    /// requested again. Default 50 ms; [`commit_budget`](Self::commit_budget) to less than the
    /// usable TTL.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub min_usable: Duration,
    /// How many callers may wait for locks in this manager at the same time, over all keys. Default
    /// 10,000; 1 to 10,000,000. A caller of a semaphore counts once, whatever its slots.
    pub max_waiters: usize,
    /// How many times in a row a hold may be handed off to the next caller in this process before
    /// it is released to the others. Default 64; 0 switches handoff off.
    ///
    /// So one process has at most `handoff_count + 1` critical sections in a row under one grant,
    /// and hands it off no later than [`handoff_time`](Self::handoff_time) after it. Then the lock
    /// is released in the store, which wakes the other processes, and this one lets them ask first.
    /// On a store with a [queue](crate::store::Queue) its new place is behind all that wait, so
    /// each of `p` processes waits for at most `p - 1` grants. On a quorum, which has no queue, it
    /// reads the lock once before it asks. As a rule the processes that were woken are first; on a
    /// busy machine it may get a few grants in a row. If you need a promise there, use
    /// [`fair`](crate::Lock::fair) locks, which are never handed off, or set 0.
    pub handoff_count: u32,
    /// For how long, from the grant, a hold may be handed off. Default 200 ms; up to a minute. See
    /// [`handoff_count`](Self::handoff_count).
    ///
    /// A caller that is given a hold, or the turn to ask the store, has as long to take it, and at
    /// least 100 ms. If it does not, because nobody polls it, the hold is released, the turn passes
    /// to the next caller in this process, and the late one asks the store by itself.
    #[cfg_attr(feature = "config", serde(with = "serde::duration"))]
    pub handoff_time: Duration,
}

const LEAST_CALL_TIME: Duration = Duration::from_millis(100);

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            max_ttl: Duration::from_secs(30),
            margin: Duration::from_millis(10),
            server_drift_ppm: 83_334,
            renewals_per_ttl: 3,
            wait: Duration::from_secs(45),
            retry_delay: Duration::from_millis(10),
            retry_jitter: Duration::from_millis(10),
            max_poll_interval: Duration::from_secs(1),
            request_timeout: Duration::from_millis(500),
            max_hold: None,
            lock_delay: Duration::ZERO,
            commit_budget: Duration::from_millis(10),
            min_usable: Duration::from_millis(50),
            max_waiters: 10_000,
            handoff_count: 64,
            handoff_time: Duration::from_millis(200),
        }
    }
}

impl Settings {
    /// The part of a granted TTL during which a lease is live (I1): the TTL without drift and
    /// [`margin`](Self::margin), rounded down. About 0.92 of the TTL with the defaults; zero if
    /// nothing is left.
    #[must_use]
    pub fn usable_ttl(&self, ttl: Duration) -> Duration {
        self.terms().usable(ttl)
    }

    /// How long a caller has to take what it is given. Without a floor a short
    /// [`handoff_time`](Self::handoff_time) would call a whole queue before its first caller is
    /// polled.
    pub(crate) fn call_time(&self) -> Duration {
        self.handoff_time.max(LEAST_CALL_TIME)
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms {
            server_drift_ppm: self.server_drift_ppm,
            margin: self.margin,
        }
    }
}
