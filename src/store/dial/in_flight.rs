//! [`InFlight`]: a request that was sent, and what its end says about the connection.

use super::health::Health;
use crate::clock::{Clock, Reading};

/// A request that was sent. If it is dropped late, its connection is given up.
pub(crate) struct InFlight<'a> {
    clock: &'a Clock,
    sent_at: Reading,
    health: &'a Health,
    has_ended: bool,
}

impl<'a> InFlight<'a> {
    pub(crate) fn begin(clock: &'a Clock, health: &'a Health) -> Self {
        Self {
            clock,
            sent_at: clock.fast(),
            health,
            has_ended: false,
        }
    }

    /// The request was answered, or timed out: the caller notes which of the two.
    pub(crate) fn end(mut self) -> &'a Health {
        self.has_ended = true;
        self.health
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.health.dropped(self.sent_at, self.clock.fast());
        }
    }
}
