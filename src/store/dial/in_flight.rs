//! [`InFlight`]: a request that was sent, and what its end says about the connection.

use std::time::Duration;

use super::health::Health;
use crate::clock::{Clock, Reading};

/// A request that was dropped when its connection had not answered anybody for this long counts as
/// timed out.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// A request that was sent. If it is dropped late, its connection is given up, unless others were
/// answered meanwhile: then it is slow, and requests over a new one would be slower.
pub(crate) struct InFlight<'a> {
    clock: &'a Clock,
    sent_at: Reading,
    answers: u64,
    patience: Duration,
    health: &'a Health,
    has_ended: bool,
}

impl<'a> InFlight<'a> {
    pub(crate) fn begin(clock: &'a Clock, health: &'a Health) -> Self {
        Self {
            clock,
            sent_at: clock.fast(),
            answers: health.answers(),
            patience: PATIENCE,
            health,
            has_ended: false,
        }
    }

    /// How long the connection may answer nobody before this request, dropped, gives it up.
    #[cfg(feature = "postgres")]
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The request was answered, or its connection ended: the caller notes which of the two.
    pub(crate) fn end(mut self) -> &'a Health {
        self.has_ended = true;
        self.health
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let now = self.clock.fast();
            let is_silent = self.health.answers() == self.answers;
            let since = if is_silent { self.sent_at } else { now };
            self.health.dropped(since, now, self.patience);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_request_that_is_dropped_late_gives_up_a_connection_that_answered_nobody_meanwhile() {
        for (answers_others, is_dead) in [(true, false), (false, true)] {
            let time = ManualClock::new();
            let (clock, health) = (Clock::from(time.clone()), Health::default());
            health.answered();
            let request = InFlight::begin(&clock, &health);
            time.advance(Duration::from_secs(1));
            if answers_others {
                health.answered();
            }
            time.advance(Duration::from_secs(1));
            drop(request);
            assert_eq!(health.is_dead(), is_dead, "{answers_others}");
        }
    }
}
