//! [`SimHandler`]: a handler that is slow now and then, and attaches a permit to every hold.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::clock::{Clock, ManualClock};
use leasehold::handler::{
    AcquireRequest, AcquireResponse, Handler, Next, NextRelease, ReleaseRequest,
};
use parking_lot::Mutex;

use crate::dice::Dice;
use crate::net::Net;
use crate::setup::Setup;
use crate::state::Shared;

pub(crate) struct SimHandler {
    net: Net,
    clock: Clock,
    dice: Arc<Mutex<Dice>>,
}

/// Given back when the hold ends, however it ends.
struct Permit {
    shared: Shared,
    node: usize,
    life: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.lives[self.node] == self.life {
            *state.permits.entry((self.node, self.life)).or_default() -= 1;
        }
    }
}

impl SimHandler {
    pub(crate) fn new(net: &Net, clock: &ManualClock, setup: &Setup) -> Self {
        let stream = 500 + net.node as u64 + 1_000_000 * net.life;
        Self {
            net: net.clone(),
            clock: Clock::from(clock.clone()),
            dice: Arc::new(Mutex::new(Dice::new(setup.seed, stream))),
        }
    }

    async fn stall(&self) {
        let span = {
            let mut dice = self.dice.lock();
            let span = dice.ms(0.0, 400.0);
            if dice.falls(0.1) { span } else { 0 }
        };
        if span > 0 && !self.net.shared.lock().is_calm {
            self.clock.sleep(Duration::from_nanos(span)).await;
        }
    }
}

impl Handler for SimHandler {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        self.stall().await;
        let answer = next.run(request).await?;
        if let AcquireResponse::Granted(granted) = &answer {
            let permit = {
                let mut state = self.net.shared.lock();
                if state.lives[self.net.node] == self.net.life {
                    let life = (self.net.node, self.net.life);
                    *state.permits.entry(life).or_default() += 1;
                }
                Permit {
                    shared: self.net.shared.clone(),
                    node: self.net.node,
                    life: self.net.life,
                }
            };
            granted.attach(permit);
        }
        Ok(answer)
    }

    async fn release(&self, _request: &ReleaseRequest, next: NextRelease<'_>) {
        self.stall().await;
        next.run().await;
    }
}
