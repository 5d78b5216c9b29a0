//! A store of your own, and the conformance suite that tests it.
//!
//! `cargo run --example custom_store`
//!
//! It keeps its locks in a map and supports the minimum: exclusion, expiry, compare-and-release, a
//! TTL for each claim. The manager does the rest: it polls, because the store has no wake-ups.
//! Kinds of locks that need more are refused with a message that says so.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock, Stamp};
use leasehold::store::{
    Acquired, Capability, Claim, Grant, GrantProof, Hint, LockInfo, OwnerToken, Released, Renewed,
    Store,
};
use leasehold::testing::conformance;
use leasehold::testing::conformance::OnManualClock;
use leasehold::{Error, FencingToken, Key, LockManager};
use parking_lot::Mutex;

#[derive(Clone, Debug)]
struct MapStore {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Key, Held>,
    /// A real store forgets these after a TTL.
    withdrawn: HashSet<OwnerToken>,
}

#[derive(Debug)]
struct Held {
    owner: OwnerToken,
    ends: Stamp,
}

impl MapStore {
    fn new(clock: impl Into<Clock>) -> Self {
        Self {
            clock: clock.into(),
            state: Arc::default(),
        }
    }

    fn left(&self, held: &Held) -> Duration {
        held.ends.since(&self.clock.stamp())
    }

    /// Owners are compared under one mutex, so each operation is one step.
    fn holds(&self, state: &State, claim: &Claim) -> bool {
        let held = state.held.get(&claim.key);
        held.is_some_and(|held| held.owner == claim.owner && !self.left(held).is_zero())
    }

    fn record(&self, key: &Key, held: &Held) -> Option<LockInfo> {
        let mut record = LockInfo::of(key.clone());
        record.remaining = Some(self.left(held)).filter(|left| !left.is_zero());
        record.remaining.is_some().then_some(record)
    }
}

impl Store for MapStore {
    fn name(&self) -> &'static str {
        "map"
    }

    fn capability(&self) -> Capability {
        let mut capability = Capability::least();
        capability.ttl_per_lock = true;
        capability
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let mut state = self.state.lock();
        if state.withdrawn.contains(&claim.owner) {
            return Err(Error::invalid("this claim was withdrawn; make a new one"));
        }
        if let Some(held) = state.held.get(&claim.key) {
            let left = self.left(held);
            if !left.is_zero() && held.owner != claim.owner {
                return Ok(Acquired::Busy {
                    remaining: Some(left),
                });
            }
        }
        let held = Held {
            owner: claim.owner,
            ends: self.clock.stamp().plus(claim.ttl),
        };
        state.held.insert(claim.key.clone(), held);
        // The capability claims no tokens, so any value is allowed: leases work, fences do not.
        let token = FencingToken::new(0)?;
        let proof = GrantProof::of(claim.ttl);
        Ok(Acquired::Granted(Grant::new(claim.clone(), token, proof)))
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut state = self.state.lock();
        let mut answers = Vec::new();
        for Grant { claim, .. } in grants {
            if !self.holds(&state, claim) {
                answers.push(Renewed::Gone);
                continue;
            }
            if let Some(held) = state.held.get_mut(&claim.key) {
                held.ends = self.clock.stamp().plus(claim.ttl);
            }
            answers.push(Renewed::Extended(GrantProof::of(claim.ttl)));
        }
        answers
    }

    async fn release(&self, grant: &Grant) -> Released {
        let mut state = self.state.lock();
        if !self.holds(&state, &grant.claim) {
            return Released::AlreadyGone;
        }
        state.held.remove(&grant.claim.key);
        Released::Released
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.withdrawn.insert(claim.owner);
        if self.holds(&state, claim) {
            state.held.remove(&claim.key);
        }
        Ok(())
    }

    async fn subscribe(&self, _claim: &Claim) -> Result<Hint, Error> {
        Ok(Hint::never())
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let state = self.state.lock();
        Ok(state.held.get(key).and_then(|held| self.record(key, held)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let state = self.state.lock();
        let beneath = |(key, _): &(&Key, &Held)| key.as_str().starts_with(prefix);
        let held = state.held.iter().filter(beneath);
        let mut records: Vec<_> = held
            .filter_map(|(key, held)| self.record(key, held))
            .collect();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(records)
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    // The suite needs a clock, and a function that makes one more client.
    let clock = ManualClock::new();
    let store = MapStore::new(clock.clone());
    let report = conformance::run(&OnManualClock::new(clock, move || store.clone())).await;
    println!("{report}");
    report.assert_passed();

    let locks = LockManager::new(MapStore::new(Clock::system()?))?;
    let done = locks.lock("nightly").guarded(|_tx| Ok("ran")).await;
    println!("nightly: {}", done.map_or("not run", |done| done.value));
    match locks.read_write("prices").read().await {
        Ok(_) => println!("prices: read"),
        Err(refused) => println!("prices: {refused}"),
    }
    locks.shutdown().await;
    Ok(())
}
