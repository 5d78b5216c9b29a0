//! [`MemoryStore`]: locks in this process's memory. The specification of what every other store must do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, Proof, Record, Released, Renewed, Store,
};
use crate::clock::{Clock, Stamp};
use crate::error::Error;
use crate::holder::OwnerToken;
use crate::key::Key;
use crate::token::FencingToken;

/// Locks in this process's memory, for tests, for examples, and for work that one process shares out to itself.
///
/// Cloning is cheap; all clones are the same store, so that several managers contend as if over a network.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Key, Held>,
    /// Claims that were withdrawn, until when: an acquire that is executed after its withdrawal is refused.
    withdrawn: HashMap<OwnerToken, Stamp>,
    waiting: HashMap<Key, Arc<Notify>>,
    last_token: u64,
    sweep_at: usize,
}

#[derive(Debug)]
struct Held {
    claim: Claim,
    token: FencingToken,
    ends: Stamp,
}

impl MemoryStore {
    /// A store that counts by the machine's clocks.
    ///
    /// # Errors
    ///
    /// As [`Clock::system`].
    pub fn new() -> Result<Self, Error> {
        Ok(Self::with_clock(Clock::system()?))
    }

    /// A store that counts by `clock`: the server's clock, which need not be the client's.
    #[must_use]
    pub fn with_clock(clock: impl Into<Clock>) -> Self {
        Self {
            clock: clock.into(),
            state: Arc::default(),
        }
    }

    /// Loses every lock, queue and counter, as a server does that restarts without persistence.
    pub fn forget(&self) {
        *self.state.lock() = State::default();
    }
}

impl State {
    /// The live hold of a key. One whose time is over is gone.
    fn live(&self, key: &Key, now: &Stamp) -> Option<&Held> {
        self.held
            .get(key)
            .filter(|held| !held.ends.since(now).is_zero())
    }

    fn held_by(&mut self, claim: &Claim, now: &Stamp) -> Option<&mut Held> {
        self.held
            .get_mut(&claim.key)
            .filter(|held| held.claim.owner == claim.owner && !held.ends.since(now).is_zero())
    }

    /// Larger than every token before, also after the store forgot them: no clock goes back by a lost counter (I8).
    fn next_token(&mut self, now: &Stamp) -> Result<FencingToken, Error> {
        let micros = now.since(&Stamp::from_nanos([0; 3])).as_micros();
        self.last_token = (self.last_token + 1).max(u64::try_from(micros).unwrap_or(u64::MAX));
        FencingToken::new(self.last_token)
    }

    fn free(&mut self, key: &Key) {
        self.held.remove(key);
        if let Some(waiting) = self.waiting.remove(key) {
            waiting.notify_waiters();
        }
    }

    /// Drops what is over, each time the store has doubled.
    fn sweep(&mut self, now: &Stamp) {
        if self.held.len() + self.withdrawn.len() + self.waiting.len() < self.sweep_at {
            return;
        }
        let Self {
            held,
            withdrawn,
            waiting,
            ..
        } = self;
        held.retain(|_, held| !held.ends.since(now).is_zero());
        withdrawn.retain(|_, until| !until.since(now).is_zero());
        waiting.retain(|key, waiters| held.contains_key(key) || Arc::strong_count(waiters) > 1);
        self.sweep_at =
            2 * (self.held.len() + self.withdrawn.len() + self.waiting.len()).max(1_000);
    }
}

fn remaining(held: &Held, now: &Stamp) -> Duration {
    held.ends.since(now)
}

#[deny(clippy::missing_trait_methods)]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: Fencing::Monotonic,
            wakes: true,
            ttl_per_lock: true,
            tells_holder: true,
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        state.sweep(&now);
        if state.withdrawn.contains_key(&claim.owner) {
            return Err(Error::invalid(format!(
                "this claim was withdrawn: key={}; make a new claim",
                claim.key
            )));
        }
        if let Some(held) = state.held_by(claim, &now) {
            let proof = Proof::of(remaining(held, &now));
            return Ok(Acquired::Granted(Grant::new(
                claim.clone(),
                held.token,
                proof,
            )));
        }
        if let Some(held) = state.live(&claim.key, &now) {
            return Ok(Acquired::Busy {
                remaining: Some(remaining(held, &now)),
            });
        }
        let token = state.next_token(&now)?;
        let held = Held {
            claim: claim.clone(),
            token,
            ends: now.plus(claim.ttl),
        };
        state.held.insert(claim.key.clone(), held);
        Ok(Acquired::Granted(Grant::new(
            claim.clone(),
            token,
            Proof::of(claim.ttl),
        )))
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        let renew_one = |grant: &Grant| match state.held_by(&grant.claim, &now) {
            Some(held) => {
                held.ends = now.plus(grant.claim.ttl);
                Renewed::Extended(Proof::of(grant.claim.ttl))
            }
            None => Renewed::Gone,
        };
        grants.iter().map(renew_one).collect()
    }

    async fn release(&self, grant: &Grant) -> Released {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        match state.held_by(&grant.claim, &now) {
            Some(_) => {
                state.free(&grant.claim.key);
                Released::Released
            }
            None => Released::AlreadyGone,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        state.withdrawn.insert(claim.owner, now.plus(claim.ttl));
        if state.held_by(claim, &now).is_some() {
            state.free(&claim.key);
        }
        Ok(())
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let mut state = self.state.lock();
        let waiting = Arc::clone(state.waiting.entry(claim.key.clone()).or_default());
        Ok(Hint::new(waiting.notified_owned()))
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Record>, Error> {
        let state = self.state.lock();
        let now = self.clock.stamp();
        Ok(state.live(key, &now).map(|held| record(held, &now)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Record>, Error> {
        let state = self.state.lock();
        let now = self.clock.stamp();
        let mut records: Vec<_> = (state.held.values())
            .filter(|held| held.claim.key.as_str().starts_with(prefix))
            .filter(|held| !held.ends.since(&now).is_zero())
            .map(|held| record(held, &now))
            .collect();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(records)
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn record(held: &Held, now: &Stamp) -> Record {
    Record {
        label: Some(held.claim.label.clone()),
        token: Some(held.token),
        remaining: Some(remaining(held, now)),
        ..Record::of(held.claim.key.clone())
    }
}
