//! [`Counters`]: the counters of tokens that this store knows, and the claims that must not be granted any more.
//!
//! A claim is granted only with a number from a counter that its client knows. A client learns its name from the script that
//! judges the server (`arm.rs`). A server that restarted, was replaced or was flushed does not have it. A withdrawal of a
//! claim with an unanswered request removes the one that the request named, so the request is refused if it is executed later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::cluster::Slot;
use super::script::GrantScripts;
use crate::clock::{Clock, Stamp};
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::store::Claim;

/// The version of what the keys of a prefix mean. The marker and the counter's key name it.
pub(super) const PROTOCOL: u32 = 3;
/// For how long a claim without an answer is remembered. One that ended is refused for its TTL.
const REMEMBERED: Duration = Duration::from_secs(600);
/// With fewer entries than this there is no sweep.
const SWEEP_FLOOR: usize = 1_000;

/// A counter that was armed for an incarnation of a server.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) incarnation: String,
    pub(super) name: String,
    pub(super) scripts: Arc<GrantScripts>,
    /// The server's time when it armed the counter, in microseconds, and ours when the answer had arrived.
    pub(super) armed: (u64, Stamp),
}

impl Counter {
    /// About the server's time at `now`, in milliseconds; earlier rather than later. No lease is measured by it.
    fn server_millis(&self, now: &Stamp) -> u128 {
        let (micros, at) = &self.armed;
        u128::from(*micros / 1_000) + now.since(at).as_millis()
    }
}

/// The requests of a claim that are not answered.
#[derive(Debug)]
struct Unanswered {
    /// The newest of those that they named.
    counter: Arc<Counter>,
    requests: u32,
}

/// Why a claim is not granted any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Withdrawn,
    /// Its hold was found gone. A member's vote may be asked for again then.
    Gone,
}

/// What a store knows of counters and of claims that ended.
#[derive(Debug)]
pub(super) struct Counters {
    clock: Clock,
    one: Mutex<Option<Arc<Counter>>>,
    slots: Mutex<HashMap<Slot, Arc<Counter>>>,
    /// Claims with requests that may have been sent and are not answered.
    unanswered: Mutex<Remembered<Unanswered>>,
    ended: Mutex<Remembered<Ended>>,
}

impl Counters {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            one: Mutex::default(),
            slots: Mutex::default(),
            unanswered: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    /// The counter of a server that is this incarnation.
    pub(super) fn of(&self, slot: Option<Slot>, incarnation: &str) -> Option<Arc<Counter>> {
        let known = match slot {
            None => self.one.lock().clone(),
            Some(slot) => self.slots.lock().get(&slot).cloned(),
        };
        known.filter(|counter| counter.incarnation == incarnation)
    }

    /// Any counter that was armed lately: its scripts may fit.
    pub(super) fn scripts(&self, incarnation: &str) -> Arc<GrantScripts> {
        let known = self.one.lock().clone();
        let known = known.or_else(|| {
            let slots = self.slots.lock();
            slots
                .values()
                .find(|counter| counter.incarnation == incarnation)
                .cloned()
        });
        match known.filter(|counter| counter.incarnation == incarnation) {
            Some(counter) => Arc::clone(&counter.scripts),
            None => Arc::new(GrantScripts::of(incarnation)),
        }
    }

    /// A server that is this incarnation answered just now that its counter has this name. `micros`: its time.
    pub(super) fn learn(
        &self,
        slot: Option<Slot>,
        incarnation: &str,
        name: String,
        micros: u64,
    ) -> Arc<Counter> {
        let counter = Arc::new(Counter {
            incarnation: incarnation.to_owned(),
            name,
            scripts: self.scripts(incarnation),
            armed: (micros, self.clock.stamp()),
        });
        match slot {
            None => *self.one.lock() = Some(Arc::clone(&counter)),
            Some(slot) => drop(self.slots.lock().insert(slot, Arc::clone(&counter))),
        }
        counter
    }

    /// The server does not have this counter any more. One that was learned meanwhile stays.
    pub(super) fn forget(&self, slot: Option<Slot>, counter: &Arc<Counter>) {
        match slot {
            None => drop(self.one.lock().take_if(|known| Arc::ptr_eq(known, counter))),
            Some(slot) => {
                let mut slots = self.slots.lock();
                if slots
                    .get(&slot)
                    .is_some_and(|known| Arc::ptr_eq(known, counter))
                {
                    slots.remove(&slot);
                }
            }
        }
    }

    /// # Errors
    ///
    /// `Invalid` for a claim that was withdrawn, or whose hold was found gone.
    pub(super) fn ensure_open(&self, claim: &Claim, is_vote: bool) -> Result<(), Error> {
        match self.ended.lock().get(&claim.owner) {
            None => return Ok(()),
            Some(Ended::Gone) if is_vote => return Ok(()),
            Some(_) => {}
        }
        Err(Error::invalid(format!(
            "this claim was withdrawn or lost: key={}; make a new claim",
            claim.key
        )))
    }

    /// The claim will not be granted by this store any more.
    pub(super) fn end(&self, claim: &Claim, how: Ended) {
        let now = self.clock.stamp();
        let mut ended = self.ended.lock();
        if ended.get(&claim.owner) != Some(&Ended::Withdrawn) {
            ended.put(claim.owner, how, &now, claim.ttl);
        }
    }

    /// A request of this claim is about to be sent. Until its [answer](Request::answered) is reported, it counts as
    /// unanswered, however its future ends.
    ///
    /// # Errors
    ///
    /// As [`ensure_open`](Self::ensure_open), which is looked at again: a withdrawal either finds this request, or is found.
    pub(super) fn request(
        &self,
        claim: &Claim,
        is_vote: bool,
        counter: &Arc<Counter>,
    ) -> Result<Request<'_>, Error> {
        let now = self.clock.stamp();
        let mut unanswered = self.unanswered.lock();
        let requests = unanswered.get(&claim.owner).map_or(0, |one| one.requests) + 1;
        let about = counter.server_millis(&now);
        let counter = Arc::clone(counter);
        unanswered.put(
            claim.owner,
            Unanswered { counter, requests },
            &now,
            REMEMBERED,
        );
        drop(unanswered);
        let request = Request {
            counters: self,
            owner: claim.owner,
            server_millis: about,
            sent_at: now,
        };
        match self.ensure_open(claim, is_vote) {
            Ok(()) => Ok(request),
            Err(error) => {
                request.answered();
                Err(error)
            }
        }
    }

    /// The counter that an unanswered request of this claim named. Nothing is known about claims of another store.
    pub(super) fn unanswered(&self, owner: &OwnerToken) -> Option<String> {
        let unanswered = self.unanswered.lock();
        unanswered.get(owner).map(|one| one.counter.name.clone())
    }

    /// The counter that an unanswered request of this claim named is gone, so the request is harmless.
    pub(super) fn settled(&self, owner: &OwnerToken) {
        self.unanswered.lock().remove(owner);
    }
}

/// A request that names a counter.
#[derive(Debug)]
#[must_use = "its answer must be reported"]
pub(super) struct Request<'a> {
    counters: &'a Counters,
    owner: OwnerToken,
    /// About the server's time when it is sent, in milliseconds.
    pub(super) server_millis: u128,
    /// Before it was sent.
    pub(super) sent_at: Stamp,
}

impl Request<'_> {
    /// It was answered or never sent: it will not be executed later.
    pub(super) fn answered(self) {
        let mut unanswered = self.counters.unanswered.lock();
        let Some(claim) = unanswered.get_mut(&self.owner) else {
            return;
        };
        claim.requests -= 1;
        if claim.requests == 0 {
            unanswered.remove(&self.owner);
        }
    }
}

/// Claims that are remembered for a time.
#[derive(Debug)]
pub(super) struct Remembered<T> {
    /// Until when each is remembered.
    claims: HashMap<OwnerToken, (T, Stamp)>,
    sweep_at: usize,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            claims: HashMap::new(),
            sweep_at: SWEEP_FLOOR,
        }
    }
}

impl<T> Remembered<T> {
    pub(super) fn get(&self, owner: &OwnerToken) -> Option<&T> {
        self.claims.get(owner).map(|(value, _)| value)
    }

    fn get_mut(&mut self, owner: &OwnerToken) -> Option<&mut T> {
        self.claims.get_mut(owner).map(|(value, _)| value)
    }

    pub(super) fn remove(&mut self, owner: &OwnerToken) {
        self.claims.remove(owner);
    }

    /// Forgets what is old each time the number has doubled.
    pub(super) fn put(&mut self, owner: OwnerToken, value: T, now: &Stamp, span: Duration) {
        if self.claims.len() >= self.sweep_at {
            self.claims
                .retain(|_, (_, until)| !until.since(now).is_zero());
            self.sweep_at = SWEEP_FLOOR.max(2 * self.claims.len());
        }
        self.claims.insert(owner, (value, now.plus(span)));
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::model::holder::Label;

    /// A contended Redlock withdraws with each round that it loses.
    #[test]
    fn claims_that_ended_are_forgotten_after_their_ttl() {
        let clock = ManualClock::new();
        let counters = Counters::new(clock.clone().into());
        let ttl = Duration::from_secs(10);
        let claim = || {
            let owner = OwnerToken::generate().unwrap();
            Claim::new(
                "a".parse().unwrap(),
                owner,
                Label::parse("here").unwrap(),
                ttl,
            )
        };
        for _ in 0..20_000 {
            let claim = claim();
            counters.end(&claim, Ended::Withdrawn);
            assert!(counters.ensure_open(&claim, false).is_err());
            clock.advance(Duration::from_millis(10));
        }
        assert!(counters.ended.lock().claims.len() <= 2 * SWEEP_FLOOR);
    }
}
