//! [`Truth`]: what each server of the store has promised to whom, and until when by its own clock.
//!
//! It is written beside the servers, from their answers, so that an oracle asks no server anything.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::clock::{Clock, ClockKind, ManualClock, Stamp};
use leasehold::store::MemoryStore;
use leasehold::{FencingToken, Key};

use crate::setup::{SECOND, Setup};

pub(crate) type Owner = [u8; 16];

#[derive(Clone, Debug)]
struct Promise {
    key: Key,
    /// In true time.
    since: u64,
    /// By the clock of the server.
    end: u64,
}

pub(crate) struct Server {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
    pub(crate) ppm: i64,
    /// How much of true time the clock has been moved by.
    moved: u64,
    promises: BTreeMap<Owner, Promise>,
}

pub(crate) struct Truth {
    pub(crate) servers: Vec<Server>,
    /// The attempts that a token was given to.
    owners: BTreeMap<(Key, u64), Vec<Owner>>,
    tokens: BTreeMap<Owner, u64>,
    /// The largest token that a single store gave for each key.
    last: BTreeMap<Key, u64>,
    /// When a release or withdrawal of each attempt was first sent.
    given_back: BTreeMap<Owner, u64>,
    pub(crate) grants: u64,
    now: u64,
}

/// What `span` of true time is on a clock.
pub(crate) fn on_clock(span: u64, ppm: i64) -> u64 {
    match ppm {
        0 => span,
        _ => (u128::from(span) * rate(ppm) / 1_000_000) as u64,
    }
}

fn rate(ppm: i64) -> u128 {
    u128::from((1_000_000 + ppm).unsigned_abs())
}

/// The true time that `span` on a clock takes at least, rounded up.
pub(crate) fn in_truth(span: u64, ppm: i64) -> u64 {
    match ppm {
        0 => span,
        _ => (u128::from(span) * 1_000_000).div_ceil(rate(ppm)) as u64,
    }
}

pub(crate) fn boot(clock: &ManualClock) -> u64 {
    stamp(clock).on(ClockKind::Boot)
}

pub(crate) fn stamp(clock: &ManualClock) -> Stamp {
    Clock::from(clock.clone()).stamp()
}

impl Server {
    fn new(ppm: i64) -> Self {
        let clock = ManualClock::new();
        Self {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            ppm,
            moved: 0,
            promises: BTreeMap::new(),
        }
    }

    fn advance_to(&mut self, now: u64) {
        let target = on_clock(now, self.ppm);
        self.clock
            .advance(Duration::from_nanos(target - self.moved));
        self.moved = target;
    }

    fn left(&self, owner: &Owner, key: &Key) -> u64 {
        let promise = self.promises.get(owner).filter(|known| known.key == *key);
        let left = promise.map_or(0, |known| known.end.saturating_sub(boot(&self.clock)));
        in_truth(left, self.ppm)
    }
}

impl Truth {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            servers: setup
                .server_ppm
                .iter()
                .map(|&ppm| Server::new(ppm))
                .collect(),
            owners: BTreeMap::new(),
            tokens: BTreeMap::new(),
            last: BTreeMap::new(),
            given_back: BTreeMap::new(),
            grants: 0,
            now: 0,
        }
    }

    /// Of a single store: a hold that was granted a while ago, for which `is_known` knows no token.
    pub(crate) fn forgotten(&self, is_known: impl Fn(&Key, u64) -> bool) -> Option<&Key> {
        let [server] = &*self.servers else {
            return None;
        };
        let mut old = server.promises.iter().filter(|(_, promise)| {
            promise.since + 1_500_000_000 < self.now && promise.end > boot(&server.clock)
        });
        let lost = old.find(|(owner, promise)| {
            self.tokens
                .get(*owner)
                .is_some_and(|&token| !is_known(&promise.key, token))
        });
        lost.map(|(_, promise)| &promise.key)
    }

    pub(crate) fn advance_to(&mut self, now: u64) {
        self.now = now;
        for server in &mut self.servers {
            server.advance_to(now);
        }
    }

    pub(crate) fn promised(&mut self, server: usize, owner: Owner, key: &Key, ttl: Duration) {
        let server = &mut self.servers[server];
        let end = boot(&server.clock) + ttl.as_nanos() as u64;
        let key = key.clone();
        let since = server.promises.get(&owner).map(|known| known.since);
        let since = since.unwrap_or(self.now);
        server.promises.insert(owner, Promise { key, since, end });
    }

    /// A single store gave a token. An error if it is not larger than every one before.
    pub(crate) fn granted(
        &mut self,
        owner: Owner,
        key: &Key,
        token: FencingToken,
    ) -> Result<(), String> {
        let token = token.number();
        if self.tokens.get(&owner) == Some(&token) {
            return Ok(());
        }
        self.grants += 1;
        let last = self.last.insert(key.clone(), token);
        self.named(owner, key, token);
        match last {
            Some(last) if last >= token => {
                Err(format!("a grant of {key} has token {token} after {last}"))
            }
            _ => Ok(()),
        }
    }

    /// The token by which an attempt is known from now on.
    pub(crate) fn named(&mut self, owner: Owner, key: &Key, token: u64) {
        self.tokens.insert(owner, token);
        let owners = self.owners.entry((key.clone(), token)).or_default();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    pub(crate) fn gone(&mut self, server: usize, owner: &Owner) {
        self.servers[server].promises.remove(owner);
    }

    /// A release or a withdrawal of an attempt was sent.
    pub(crate) fn gives_back(&mut self, owner: Owner, now: u64) {
        self.given_back.entry(owner).or_insert(now);
    }

    /// Whether an attempt has, or had, the hold with a token.
    pub(crate) fn is_of(&self, owner: &Owner, key: &Key, token: u64) -> bool {
        let owners = self.owners.get(&(key.clone(), token));
        owners.is_some_and(|owners| owners.contains(owner))
    }

    /// When the hold with a token was first given back.
    pub(crate) fn given_back_at(&self, key: &Key, token: u64) -> Option<u64> {
        let owners = self.owners.get(&(key.clone(), token))?;
        owners
            .iter()
            .filter_map(|owner| self.given_back.get(owner))
            .min()
            .copied()
    }

    /// Every hold that was ever granted.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (&Key, u64)> {
        self.owners.keys().map(|(key, token)| (key, *token))
    }

    /// For how much true time the store keeps the hold with a token at least: a majority of its
    /// servers.
    pub(crate) fn left(&self, key: &Key, token: u64) -> u64 {
        let Some(owners) = self.owners.get(&(key.clone(), token)) else {
            return 0;
        };
        if let [server] = &*self.servers {
            let left = owners.iter().map(|owner| server.left(owner, key));
            return left.max().unwrap_or_default();
        }
        let majority = self.servers.len() / 2;
        let of = |owner: &Owner| {
            let mut left: Vec<_> = self.servers.iter().map(|s| s.left(owner, key)).collect();
            left.sort_unstable_by(|a, b| b.cmp(a));
            left[majority]
        };
        owners.iter().map(of).max().unwrap_or_default()
    }
}

/// Longer than every hold of a dead process.
pub(crate) fn outlived(setup: &Setup) -> u64 {
    setup.max_ttl() + 2 * SECOND
}
