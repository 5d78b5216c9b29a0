//! A simulated Redis server below the shipped [`RedisStore`], at the bytes of its connections. It
//! runs the scripts of the store unchanged.
//!
//! A connection keeps its order: what is delayed delays what follows it, and what is lost is lost
//! with everything after it. Only what comes over different connections can pass each other. The
//! server executes what arrives, whether or not anybody still waits, by a clock of its own, which
//! may be fast. It is paused, killed, and restarted with what its persistence kept.
//!
//! [`RedisStore`]: leasehold::redis::RedisStore

mod connections;
mod database;
mod faults;
mod holds;
mod keys;
mod lua;
mod resp;
mod server;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use crate::dice::Dice;
use crate::net::Event;
use crate::setup::Setup;
use crate::state::State;
use crate::truth::on_clock;

use connections::Connection;
use faults::{Disk, Menu};
use holds::Holds;
use keys::Keys;
use server::Server;

pub(crate) use stream::SimDial;

/// When each world begins, in microseconds since 1970.
const EPOCH: u64 = 1_790_000_000_000_000;

/// The server, its disk, and who is connected to it.
pub(crate) struct Redis {
    menu: Menu,
    disk: Disk,
    dice: Dice,
    ppm: i64,
    server: Server,
    is_up: bool,
    is_paused: bool,
    /// What has arrived while the server was paused.
    backlog: VecDeque<(u64, Option<Vec<u8>>)>,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    /// What was written to disk lately.
    written: VecDeque<Keys>,
    holds: Holds,
}

impl Redis {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut dice = Dice::new(setup.seed, 600);
        let (menu, disk) = (Menu::draw(&mut dice), Disk::draw(&mut dice));
        let mut this = Self {
            menu,
            disk,
            dice,
            ppm: setup.server_ppm[0],
            server: Server::default(),
            is_up: true,
            is_paused: false,
            backlog: VecDeque::new(),
            connections: BTreeMap::new(),
            last_connection: 0,
            written: VecDeque::new(),
            holds: Holds::default(),
        };
        this.begin(0, Keys::default());
        // As likely a server that has run for long.
        if this.dice.falls(0.5) {
            this.server.database.about.started -= 1_000_000_000;
        }
        this
    }

    /// The time of the server, in microseconds since 1970.
    fn micros(&self, now: u64) -> u64 {
        EPOCH + on_clock(now, self.ppm) / 1_000
    }

    /// Moves the time of the database.
    fn advance(&mut self, now: u64) {
        self.server.database.micros = self.micros(now);
    }

    /// A new process with these keys.
    fn begin(&mut self, now: u64, keys: Keys) {
        let id = [(); 5].map(|()| format!("{:08x}", self.dice.next() as u32));
        self.server = Server::default();
        self.advance(now);
        let database = &mut self.server.database;
        database.keys = keys;
        database.about.run_id = id.concat();
        database.about.data_id = id.concat();
        database.about.started = database.micros;
    }

    /// What is left when everybody has gone, and must not be.
    pub(crate) fn leftovers(&self, now: u64) -> Option<String> {
        let millis = (self.micros(now) / 1_000) as i64;
        let live = self.server.database.keys.live(millis);
        let names = live.map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        // The counter and the marker are one of each for all locks, and a claim that was withdrawn
        // is refused for a while.
        let is_of_locks =
            |name: &String| !name.starts_with("{leasehold}:") && !name.contains("}:gone:");
        let of_locks: Vec<_> = names.filter(is_of_locks).collect();
        (!of_locks.is_empty()).then(|| format!("keys {of_locks:?}"))
    }
}

impl State {
    /// The server of a world that has one.
    pub(crate) fn redis(&mut self) -> &mut Redis {
        self.redis.as_mut().expect("a world of redis")
    }

    /// Something that the network or the server does later.
    fn soon(&mut self, delay: u64, deed: impl FnOnce(&mut Self) + Send + 'static) {
        let when = self.now + delay;
        self.at(when, Event::Do(Box::new(deed)));
    }

    /// The server begins.
    pub(crate) fn begin_redis(&mut self) {
        self.write_to_disk();
        self.strike_redis();
    }
}
