//! A model of a ZooKeeper ensemble: a leader and two followers, below the shipped
//! [`ZooKeeperStore`].
//!
//! It keeps what the store relies on, and as little more as real servers do. Writes get their order
//! from the leader and need a majority. A follower reads from what it has applied, and is behind.
//! The leader alone judges sessions, in ticks of its own clock, and learns that a session of a
//! follower is alive only from the follower's answers to its pings, every half tick, from a session
//! that is opened, and from one that is taken over. A new leader counts every session from its own
//! begin.
//!
//! The assumption of `src/zookeeper/store/proof.rs` holds here, and nothing beyond it: pings reach
//! a follower within a tick of each other, or the connection is over.
//!
//! [`ZooKeeperStore`]: leasehold::zookeeper::ZooKeeperStore

mod client;
mod connections;
mod driver;
mod faults;
mod leader;
mod peers;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dice::Dice;
use crate::net::Event;
use crate::setup::Setup;
use crate::state::State;
use crate::truth::{in_truth, on_clock};

use connections::{Connection, Origin};
use faults::Menu;
use leader::{Entry, Record};
use peers::Server;
use tree::Tree;

pub(crate) use driver::SimServers;

pub(crate) const SERVERS: usize = 3;
/// After so many ticks without a word a follower and its leader give each other up.
const SYNC_LIMIT: u64 = 5;

/// The servers, what they have agreed on, and who is connected to them.
pub(crate) struct Ensemble {
    tick: u64,
    menu: Menu,
    pub(crate) dice: Dice,
    servers: Vec<Server>,
    /// Every write in its order. The first of them are committed, and these stay for ever.
    log: Vec<Arc<Entry>>,
    committed: usize,
    /// The tree after the whole log, by which the leader judges what is asked.
    head: Tree,
    epoch: i64,
    counter: i64,
    leader: Option<usize>,
    elects: bool,
    /// For how many pings the leader has had no follower.
    alone: u64,
    /// The leader's count of each session.
    records: BTreeMap<i64, Record>,
    last_session: i64,
    /// Who waits until this much of the log is committed.
    syncs: Vec<(usize, usize, Origin)>,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    last_link: u64,
    /// The node that was made in the same write in which another was deleted: it keeps the others
    /// out in its place.
    barriers: BTreeMap<i64, i64>,
    /// From then on nothing ticks any more.
    pub(crate) stops_at: u64,
}

impl Ensemble {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut dice = Dice::new(setup.seed, 500);
        let menu = Menu::draw(&mut dice);
        let servers = (0..SERVERS).map(|_| {
            let ppm = ((dice.part() * 2.0).min(1.0) * 83_300.0) as i64;
            Server::new(if menu.drifts { ppm } else { 0 })
        });
        Self {
            tick: setup.tick,
            servers: servers.collect(),
            menu,
            dice,
            log: Vec::new(),
            committed: 0,
            head: Tree::new(),
            epoch: 0,
            counter: 0,
            leader: None,
            elects: false,
            alone: 0,
            records: BTreeMap::new(),
            last_session: 0x1_0000,
            syncs: Vec::new(),
            connections: BTreeMap::new(),
            last_connection: 0,
            last_link: 0,
            barriers: BTreeMap::new(),
            stops_at: u64::MAX,
        }
    }

    /// For how much true time the servers keep everybody out for the hold with a token at least, if
    /// they hear nothing more.
    pub(crate) fn kept(&self, token: u64, now: u64) -> u64 {
        let mut czxid = i64::try_from(token).unwrap_or_default();
        let mut owner = self.head.owner_of(czxid);
        while owner.is_none()
            && let Some(barrier) = self.barriers.get(&czxid)
        {
            czxid = *barrier;
            owner = self.head.owner_of(czxid);
        }
        // The next leader counts anew.
        match (owner, self.leader) {
            (None, _) => 0,
            (Some(_), None) => u64::MAX / 4,
            (Some(owner), Some(leader)) => {
                let ppm = self.servers[leader].ppm;
                let record = self.records.get(&owner);
                let left = record.map_or(0, |r| r.expiry.saturating_sub(on_clock(now, ppm)));
                in_truth(left, ppm)
            }
        }
    }

    /// What is left when everybody has gone, and must not be.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let (nodes, sessions) = (self.head.all_ephemerals(), &self.records);
        (!nodes.is_empty() || !sessions.is_empty())
            .then(|| format!("nodes {nodes:?}, sessions {:x?}", sessions.keys()))
    }

    /// What a tick of the leader takes in true time.
    fn true_tick(&self) -> u64 {
        let ppm = self.leader.map_or(0, |leader| self.servers[leader].ppm);
        in_truth(self.tick, ppm)
    }

    /// Whether a server answers clients.
    fn serves(&self, server: usize) -> bool {
        let is_linked = self.servers[server].link.is_some();
        self.servers[server].is_up && (self.leader == Some(server) || is_linked)
    }

    fn zxid_of(&self, server: usize) -> i64 {
        match self.servers[server].applied {
            0 => 0,
            applied => self.log[applied - 1].mark.zxid,
        }
    }
}

impl State {
    /// The ensemble of a world that has one.
    pub(crate) fn zookeeper(&mut self) -> &mut Ensemble {
        self.ensemble.as_mut().expect("a world of zookeeper")
    }

    /// Something that the servers do later.
    fn later(&mut self, delay: u64, deed: impl FnOnce(&mut Self) + Send + 'static) {
        let when = self.now + delay;
        self.at(when, Event::Do(Box::new(deed)));
    }

    /// The servers begin.
    pub(crate) fn begin_zookeeper(&mut self) {
        self.elect();
        for server in 0..SERVERS {
            self.join(server);
        }
        self.check_peers();
        self.strike_servers();
        self.reap();
    }
}
