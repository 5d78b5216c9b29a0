//! [`Pace`]: sends nothing for as long as the server asks.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, ClockKind};
use crate::model::span::nanos;

/// The pause that a refusal for too many requests asks for, if it names none.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// When the next request may be sent, for all callers of one client.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Clock,
    /// Nothing is sent before: by the boot clock.
    rests_until: Mutex<u64>,
}

impl Pace {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            rests_until: Mutex::new(0),
        }
    }

    #[cfg(feature = "object-store")]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Waits for as long as the server asked for.
    pub(crate) async fn rested(&self) {
        loop {
            // Another answer may prolong it meanwhile.
            let until = *self.rests_until.lock();
            if self.clock.stamp().on(ClockKind::Boot) >= until {
                return;
            }
            self.clock.sleep_until(until).await;
        }
    }

    /// The server asks for this pause, or for one without a length.
    pub(crate) fn rest(&self, pause: Option<Duration>) {
        let now = self.clock.stamp().on(ClockKind::Boot);
        let pause = pause.unwrap_or(PAUSE).min(LONGEST_PAUSE);
        let until = now.saturating_add(nanos(pause));
        let mut rests_until = self.rests_until.lock();
        *rests_until = until.max(*rests_until);
    }
}
