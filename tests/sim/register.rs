//! The shipped store that observes its holders, over a register at the far end of the network.
//!
//! The register has no clock, so nothing there ends a hold. The judges count for it: a version that
//! took effect keeps others out for the TTL in its record, by the fastest clock of all processes,
//! since each of them saw it later than that.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;

use futures_util::FutureExt;
use leasehold::store::Hint;
use leasehold::store::observed::{
    Listed, MemoryRegister, Record, Register, State as RecordState, Swapped,
};
use leasehold::{Error, FencingToken, Key};

use crate::dice::Dice;
use crate::net::{Net, Op, To};
use crate::setup::Setup;
use crate::state::State;
use crate::store::Hints;
use crate::truth::in_truth;

/// The records, and when each version took effect.
pub(crate) struct Observed {
    records: MemoryRegister,
    /// In true time.
    since: BTreeMap<Key, u64>,
    /// By how much the fastest clock of a process is too fast.
    fastest: i64,
    wakes: bool,
}

fn at_once<T>(answer: impl Future<Output = Result<T, Error>>) -> T {
    let answer = answer
        .now_or_never()
        .expect("a register in memory answers at once");
    answer.expect("a register in memory does not fail")
}

impl Observed {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            records: MemoryRegister::new(),
            since: BTreeMap::new(),
            fastest: setup.node_ppm.iter().copied().max().unwrap_or_default(),
            wakes: Dice::new(setup.seed, 11).falls(0.5),
        }
    }

    /// For how much true time everybody is kept out for the hold with a token at least.
    pub(crate) fn kept(&self, key: &Key, token: u64, now: u64) -> u64 {
        let Some((record, _)) = at_once(self.records.load(key)) else {
            return 0;
        };
        if record.token != token || record.state == RecordState::Free {
            return 0;
        }
        let since = self.since.get(key).copied().unwrap_or_default();
        let ttl = in_truth(record.ttl.as_nanos() as u64, self.fastest);
        (since + ttl).saturating_sub(now)
    }
}

impl State {
    /// The register of a world that has one.
    fn register(&mut self) -> &mut Observed {
        self.observed.as_mut().expect("a world of a register")
    }

    fn swap(&mut self, key: &Key, expected: Option<&u64>, record: &Record) -> Swapped<u64> {
        let now = self.now;
        let observed = self.register();
        let before = at_once(observed.records.load(key));
        let swapped = at_once(observed.records.swap(key, expected, record));
        let Swapped::Swapped(version) = swapped else {
            self.coverage.sometimes("a write found another version");
            return swapped;
        };
        // For an observer an equal version is the same one.
        if before.as_ref().is_none_or(|(_, before)| *before != version) {
            observed.since.insert(key.clone(), now);
        }
        self.note(before.map(|(record, _)| record), key, record);
        swapped
    }

    fn note(&mut self, before: Option<Record>, key: &Key, after: &Record) {
        let was = before.as_ref().map(|record| record.state);
        let happened = match (was, after.state) {
            (_, RecordState::Barred) => Some("a key was barred"),
            (Some(RecordState::Barred), RecordState::Held) => Some("a bar was over"),
            (Some(RecordState::Held), RecordState::Held)
                if before.is_some_and(|record| record.owner != after.owner) =>
            {
                Some("a dead holder's key was taken over")
            }
            _ => None,
        };
        if let Some(happened) = happened {
            self.coverage.sometimes(happened);
        }
        let (Some(owner), Ok(token)) = (after.owner, FencingToken::new(after.token)) else {
            return;
        };
        let judged = self.truth.granted(*owner.as_bytes(), key, token);
        self.log.note(self.now, "grant", [token.number(), 0, 0]);
        if let Err(why) = judged {
            self.fail("O9 tokens grow", || why);
        }
    }
}

/// The register as one life of one node sees it.
pub(crate) struct SimRegister {
    pub(crate) net: Net,
    pub(crate) hints: Hints,
}

impl fmt::Debug for SimRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRegister({})", self.net.node)
    }
}

impl SimRegister {
    /// One request, executed when it arrives.
    async fn ask<T: Send + 'static>(
        &self,
        op: Op,
        execute: impl Fn(&mut State) -> T + Send + Sync + 'static,
    ) -> Result<T, Error> {
        Ok(self.net.ask(To::Server(0), op, execute).await)
    }
}

fn op_of(record: &Record) -> Op {
    match record.state {
        RecordState::Free => Op::Release,
        RecordState::Held => Op::Acquire,
        RecordState::Barred => Op::Revoke,
    }
}

impl Register for SimRegister {
    type Version = u64;

    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn load(&self, key: &Key) -> Result<Option<(Record, u64)>, Error> {
        let key = key.clone();
        let asked = self.ask(Op::Inspect, move |state| {
            at_once(state.register().records.load(&key))
        });
        asked.await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&u64>,
        record: &Record,
    ) -> Result<Swapped<u64>, Error> {
        let (key, expected, record) = (key.clone(), expected.copied(), record.clone());
        let asked = self.ask(op_of(&record), move |state| {
            state.swap(&key, expected.as_ref(), &record)
        });
        asked.await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed<u64>>, Error> {
        let prefix = prefix.to_owned();
        let asked = self.ask(Op::Inspect, move |state| {
            at_once(state.register().records.list(&prefix))
        });
        asked.await
    }

    fn watches(&self) -> bool {
        self.net.shared.lock().register().wakes
    }

    async fn watch(&self, key: &Key) -> Result<Hint, Error> {
        let (key, hints) = (key.clone(), self.hints.clone());
        let (node, life) = (self.net.node, self.net.life);
        let asked = self.ask(Op::Subscribe, move |state| {
            let hint = at_once(state.register().records.watch(&key));
            hints.subscribed(node, life, hint)
        });
        let woken = asked.await?;
        Ok(Hint::new(async move {
            // A lost wake-up: nobody learns of it.
            if woken.await.is_err() {
                pending().await
            }
        }))
    }
}
