//! [`Renewals`]: the engine alone, for measuring it.

use std::time::Duration;

use super::engine::{Engine, Orders, Pace, Proven};
use crate::model::span::nanos;

/// The manager's engine with a number of holds and no store: what a round of renewals costs without
/// the network.
#[derive(Debug)]
pub struct Renewals {
    engine: Engine,
    orders: Orders,
    now: u64,
}

const TTL: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(1);

impl Renewals {
    /// An engine that has taken over `holds` holds.
    #[must_use]
    pub fn new(holds: usize) -> Self {
        let pace = Pace {
            renewals_per_ttl: 3,
            heartbeat: None,
            request_timeout: Duration::from_millis(500),
        };
        let now = nanos(Duration::from_secs(1_000));
        let mut engine = Engine::new(pace, now, 1);
        for _ in 0..holds {
            engine.adopt(proven(now), now, None);
        }
        Self {
            engine,
            orders: Orders::default(),
            now,
        }
    }

    /// Moves the time by a whole renewal interval and answers every renewal that falls due. Gives
    /// how many there were.
    pub fn round(&mut self) -> usize {
        let end = self.now + nanos(TTL) / 3;
        let mut renewed = 0;
        while self.now < end {
            self.now = self
                .engine
                .next_tick()
                .map_or(end, |next| next.clamp(self.now + nanos(TICK), end));
            self.engine.tick(self.now, &mut self.orders);
            let due = std::mem::take(&mut self.orders.renew);
            for &id in &due {
                self.engine.answered(id, Some(proven(self.now)), self.now);
            }
            renewed += due.len();
            self.orders.renew = due;
            self.orders.renew.clear();
        }
        renewed
    }
}

fn proven(now: u64) -> Proven {
    Proven {
        sent_at: now,
        ttl: TTL,
        deadline: now + nanos(TTL),
    }
}
