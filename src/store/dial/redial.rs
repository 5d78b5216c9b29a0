//! [`Redial`]: when a connection may be made again.
//!
//! A connection that served a caller may be made again at once, and so may one that lasted longer
//! than the pause, which counts from the last attempt. Otherwise the time between two attempts
//! doubles, with jitter, so that a server that is down, or closes every connection, is not flooded
//! however many callers there are.

use std::time::Duration;

use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::random::Jitter;

/// The least time between the first two attempts.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// The most time between two attempts.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);
/// A caller waits for an attempt that begins within this; otherwise it gets the error of the last
/// attempt.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(200);
/// An attempt this long after the last one is a first attempt again.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// The attempts to connect since the last useful connection.
#[derive(Debug)]
pub(crate) struct Redial {
    longest: Duration,
    attempts: u32,
    last: Option<Stamp>,
    /// How long after the last attempt the next one may begin.
    interval: Duration,
    pub(crate) last_error: Option<Error>,
}

impl Redial {
    /// The time between attempts stays below a tenth of the longest lease, so that a holder
    /// survives a short outage.
    pub(crate) fn new(max_ttl: Duration) -> Self {
        Self {
            longest: LONGEST_INTERVAL.min(max_ttl / 10),
            attempts: 0,
            last: None,
            interval: Duration::ZERO,
            last_error: None,
        }
    }

    /// The last connection served a caller: the next attempt may begin at once.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
        self.last = None;
        self.last_error = None;
    }

    /// How long the next attempt must wait.
    pub(crate) fn delay(&self, now: &Stamp) -> Duration {
        let since = self.last.as_ref().map(|last| now.since(last));
        since.map_or(Duration::ZERO, |since| self.interval.saturating_sub(since))
    }

    /// An attempt begins at `at`.
    pub(crate) fn begin(&mut self, at: Stamp) {
        let is_old = (self.last.as_ref()).is_some_and(|last| at.since(last) >= FORGET_AFTER);
        if is_old {
            self.attempts = 0;
        }
        let doubled = FIRST_INTERVAL * (1 << self.attempts.min(10));
        self.attempts += 1;
        let interval = doubled.min(self.longest);
        self.interval = interval + Jitter::seeded().up_to(interval / 2);
        self.last = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Stamp = Stamp::from_nanos([1; 3]);

    fn at(span: Duration) -> Stamp {
        START.plus(span)
    }

    /// How many attempts a crowd makes that never stops asking.
    fn attempts_within(redial: &mut Redial, span: Duration) -> usize {
        let mut now = Duration::ZERO;
        let mut attempts = 0;
        while now < span {
            if redial.delay(&at(now)).is_zero() {
                redial.begin(at(now));
                attempts += 1;
            }
            now += Duration::from_millis(1);
        }
        attempts
    }

    #[test]
    fn a_server_that_is_down_is_dialled_a_few_times_however_many_ask() {
        let mut redial = Redial::new(Duration::from_secs(30));
        let attempts = attempts_within(&mut redial, Duration::from_secs(3));
        assert!((3..=6).contains(&attempts), "{attempts}");
    }

    #[test]
    fn a_connection_that_was_useful_is_made_again_at_once() {
        let mut redial = Redial::new(Duration::from_secs(30));
        for _ in 0..5 {
            redial.begin(START);
        }
        assert!(redial.delay(&START) >= Duration::from_millis(1_600));
        redial.reset();
        assert_eq!(redial.delay(&START), Duration::ZERO);
    }

    #[test]
    fn short_leases_are_not_lost_to_a_long_interval() {
        let mut redial = Redial::new(Duration::from_secs(1));
        for _ in 0..20 {
            redial.begin(START);
        }
        assert!(redial.delay(&START) <= Duration::from_millis(150));
    }

    #[test]
    fn an_old_failure_is_forgotten() {
        let mut redial = Redial::new(Duration::from_secs(30));
        for _ in 0..5 {
            redial.begin(START);
        }
        let later = at(FORGET_AFTER);
        redial.begin(later);
        assert!(redial.delay(&later) <= FIRST_INTERVAL * 3 / 2);
    }
}
