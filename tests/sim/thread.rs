//! [`Thread`]: the only thread of one life of one process, as the code that keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::ManualClock;

use crate::coverage::Doing;
use crate::net::Event;
use crate::setup::Fault;
use crate::state::Shared;
use crate::truth::on_clock;

#[derive(Clone)]
pub(crate) struct Thread {
    pub(crate) shared: Shared,
    pub(crate) clock: ManualClock,
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) worker: usize,
    /// By how much stalls have moved the clock ahead of true time, which catches up before the next
    /// turn.
    pub(crate) ahead: Arc<AtomicU64>,
}

impl Thread {
    /// Its code keeps the thread for `span`: the process's clock goes on, nothing else in it does,
    /// and the rest of the world sees what it does afterwards at the later time.
    pub(crate) fn stall(&self, span: u64) {
        let mut state = self.shared.lock();
        let is_alive = state.lives[self.node] == self.life;
        if span == 0 || state.is_calm || !state.setup.has(Fault::Stall) || !is_alive {
            return;
        }
        let doing = state.doing.get(&(self.node, self.worker)).copied();
        state
            .coverage
            .met(Fault::Stall, doing.unwrap_or(Doing::Running));
        let begin = state.now.max(state.stalled[self.node]);
        state.stalled[self.node] = begin + span;
        let left = begin + span - state.now;
        state.pause(self.node, left);
        state.at(begin + span, Event::Resume(self.node));
        let on_clock = on_clock(span, state.setup.node_ppm[self.node]);
        self.ahead.fetch_add(on_clock, Ordering::Relaxed);
        drop(state);
        self.clock.advance(Duration::from_nanos(on_clock));
    }
}
