//! [`State`]: what all parts of the world share, behind one lock: true time, messages in flight,
//! and what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::coverage::{Coverage, Doing};
use crate::dice::Dice;
use crate::history::History;
use crate::leases::Leases;
use crate::log::Log;
use crate::net::{Event, Links};
use crate::picture::Picture;
use crate::register::Observed;
use crate::resource::Resource;
use crate::runs::Runs;
use crate::setup::Setup;
use crate::shards::Served;
use crate::truth::{Owner, Truth};

/// The shared state. The world runs on one thread: the lock is never waited for, and never held
/// while code of the library runs that could call back.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) setup: Setup,
    /// True time since the beginning, in nanoseconds.
    pub(crate) now: u64,
    pub(crate) queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    /// The dice of the network.
    pub(crate) dice: Dice,
    pub(crate) links: Links,
    pub(crate) truth: Truth,
    pub(crate) resource: Resource,
    pub(crate) leases: Leases,
    pub(crate) runs: Runs,
    pub(crate) log: Log,
    pub(crate) coverage: Coverage,
    /// For a drawing, if somebody wants one.
    pub(crate) picture: Option<Picture>,
    /// For other judges, if somebody wants one.
    pub(crate) history: Option<History>,
    /// Who serves which shard.
    pub(crate) served: Served,
    /// Nodes whose tasks may have something to do.
    pub(crate) touched: BTreeSet<usize>,
    /// Which life of each node is the present one; a message to an earlier one reaches nobody.
    pub(crate) lives: Vec<u64>,
    pub(crate) paused: Vec<bool>,
    /// For how long each node has been paused, in true time.
    pub(crate) paused_for: Vec<u64>,
    /// Until when code of each node has stalled its only thread: what it sends afterwards leaves
    /// then.
    pub(crate) stalled: Vec<u64>,
    /// Faults have ended.
    pub(crate) is_calm: bool,
    /// Workers begin nothing new.
    pub(crate) is_over: bool,
    pub(crate) failure: Option<String>,
    pub(crate) failed_at: u64,
    /// What each worker does.
    pub(crate) doing: BTreeMap<(usize, usize), Doing>,
    /// How often each attempt has looked at the only server.
    pub(crate) looks: BTreeMap<Owner, u64>,
    /// What handlers attached and did not get back.
    pub(crate) permits: BTreeMap<(usize, u64), i64>,
    /// The records of a world of a register.
    pub(crate) observed: Option<Observed>,
    /// The servers of a world of zookeeper.
    #[cfg(feature = "zookeeper")]
    pub(crate) ensemble: Option<crate::zookeeper::Ensemble>,
    /// The server of a world of redis.
    #[cfg(feature = "redis-worlds")]
    pub(crate) redis: Option<crate::redis::Redis>,
    /// What each worker held: when it was calm, how often and when last.
    pub(crate) calm_holds: BTreeMap<(usize, usize), (u64, u32)>,
}

impl Shared {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            dice: Dice::new(setup.seed, 2),
            links: Links::new(setup.nodes, setup.members),
            truth: Truth::new(setup),
            resource: Resource::default(),
            leases: Leases::default(),
            runs: Runs::default(),
            log: Log::new(),
            coverage: Coverage::default(),
            picture: None,
            history: None,
            served: Served::default(),
            touched: BTreeSet::new(),
            lives: vec![0; setup.nodes],
            paused: vec![false; setup.nodes],
            paused_for: vec![0; setup.nodes],
            stalled: vec![0; setup.nodes],
            is_calm: false,
            is_over: false,
            failure: None,
            failed_at: 0,
            doing: BTreeMap::new(),
            looks: BTreeMap::new(),
            permits: BTreeMap::new(),
            observed: setup.is_register.then(|| Observed::new(setup)),
            #[cfg(feature = "zookeeper")]
            ensemble: setup
                .is_zookeeper
                .then(|| crate::zookeeper::Ensemble::new(setup)),
            #[cfg(feature = "redis-worlds")]
            redis: setup.is_redis.then(|| crate::redis::Redis::new(setup)),
            calm_holds: BTreeMap::new(),
            setup: setup.clone(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.try_lock().expect("the world runs on one thread")
    }

    /// `None` while the world has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.0.try_lock()
    }
}

impl State {
    pub(crate) fn at(&mut self, when: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), event);
    }

    /// How long a process has run so far, without its pauses.
    pub(crate) fn awake(&self, node: usize) -> u64 {
        self.now - self.paused_for[node]
    }

    /// For how much true time the store keeps the hold with a token at least.
    pub(crate) fn kept(&self, key: &leasehold::Key, token: u64) -> u64 {
        #[cfg(feature = "zookeeper")]
        if let Some(zookeeper) = &self.ensemble {
            return zookeeper.kept(token, self.now);
        }
        #[cfg(feature = "redis-worlds")]
        if let Some(redis) = &self.redis {
            return redis.kept(key, token, self.now);
        }
        match &self.observed {
            Some(observed) => observed.kept(key, token, self.now),
            None => self.truth.left(key, token),
        }
    }

    /// What is left in the store of every hold that was ever granted.
    pub(crate) fn all_left(&self) -> Vec<(&leasehold::Key, u64, u64)> {
        let all = self.truth.holds();
        all.map(|(key, token)| (key, token, self.kept(key, token)))
            .collect()
    }

    pub(crate) fn refuses_handoffs(&self, worker: usize) -> bool {
        self.setup.refuses_handoffs && worker == 0
    }

    /// The first failure of an oracle is the one that is reported.
    pub(crate) fn fail(&mut self, oracle: &str, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            let what = what();
            let seconds = self.now as f64 / 1e9;
            self.log
                .say(self.now, || format!("FAILED {oracle}: {what}"));
            self.failed_at = self.now;
            self.failure = Some(format!("{oracle} at {seconds:.6} s: {what}"));
        }
    }
}
