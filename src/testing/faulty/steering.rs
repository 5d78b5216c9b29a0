//! The decisions of a [`Faulty`](super::Faulty) for each request. No await happens while its mutex
//! is locked.

use std::collections::HashMap;
use std::time::Duration;

use super::faults::{Counts, Faults, Operation};
use crate::store::Claim;

/// The largest number of late acquires; a further one is lost.
const LATE_BOUND: usize = 10_000;

#[derive(Debug)]
pub(super) struct Steering {
    pub(super) faults: Faults,
    dice: fastrand::Rng,
    barred: HashMap<Operation, Bar>,
    counts: HashMap<Operation, Counts>,
    pub(super) restarts: u64,
    late: Vec<Claim>,
}

/// How a test stops an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bar {
    Blocked,
    Stalled,
}

/// The faults of one request, in their order.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Fate {
    pub(super) restart: bool,
    pub(super) delay: Option<Duration>,
    pub(super) lost_before: bool,
    pub(super) late: bool,
    pub(super) duplicate: bool,
    pub(super) lost_after: bool,
}

impl Steering {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            faults: Faults::default(),
            dice: fastrand::Rng::with_seed(seed),
            barred: HashMap::new(),
            counts: HashMap::new(),
            restarts: 0,
            late: Vec::new(),
        }
    }

    /// Draws every random number for every request, so that switching one fault off does not change
    /// the others.
    pub(super) fn fate(&mut self, operation: Operation) -> Fate {
        let faults = &self.faults;
        let dice = &mut self.dice;
        let mut falls = |probability: f64| dice.f64() < probability;
        let mut fate = Fate {
            restart: falls(faults.restarted),
            delay: falls(faults.delayed).then_some(faults.delay),
            lost_before: falls(faults.lost_before),
            late: falls(faults.late) && operation == Operation::Acquire,
            duplicate: falls(faults.duplicated),
            lost_after: falls(faults.lost_after),
        };
        let part = dice.f64();
        fate.delay = fate.delay.map(|longest| longest.mul_f64(part));
        fate
    }

    pub(super) fn count(&mut self, operation: Operation) -> &mut Counts {
        self.counts.entry(operation).or_default()
    }

    pub(super) fn counts(&self, operation: Operation) -> Counts {
        self.counts.get(&operation).copied().unwrap_or_default()
    }

    pub(super) fn bar(&self, operation: Operation) -> Option<Bar> {
        self.barred.get(&operation).copied()
    }

    pub(super) fn set_bar(&mut self, operation: Operation, bar: Option<Bar>) {
        match bar {
            Some(bar) => self.barred.insert(operation, bar),
            None => self.barred.remove(&operation),
        };
    }

    /// False if there is no room; the request is then lost.
    pub(super) fn hold_up(&mut self, claim: &Claim) -> bool {
        let room = self.late.len() < LATE_BOUND;
        if room {
            self.late.push(claim.clone());
        }
        room
    }

    /// Removes and returns the late acquires of a claim, or of all claims.
    pub(super) fn take_late(&mut self, of: Option<&Claim>) -> Vec<Claim> {
        let (due, kept) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|late| of.is_none_or(|claim| claim.owner == late.owner));
        self.late = kept;
        due
    }
}
