//! [`Picture`]: what a world was like after each of its steps, for a drawing. It judges nothing and
//! changes nothing.

use std::collections::BTreeMap;

use leasehold::Key;

use crate::runs::End;
use crate::state::State;
use crate::truth::in_truth;

/// Until when somebody counts on a hold, each time that this changed: `(since, end)`, in true time.
pub(crate) type Deadlines = Vec<(u64, u64)>;

#[derive(Default)]
pub(crate) struct Picture {
    /// What the store keeps, by key and token.
    pub(crate) kept: BTreeMap<(Key, u64), Deadlines>,
    /// What nodes believe, by the number of the lease.
    pub(crate) believed: Vec<Belief>,
    pub(crate) runs: Vec<Bar>,
    /// What is wrong with a node, or with a server.
    pub(crate) faults: Vec<Bar>,
    /// How much longer than a belief the store must keep a hold: the lock delay, as a fast server
    /// counts it.
    pub(crate) delay: u64,
    /// The faults of now, as places in `faults`.
    open: BTreeMap<(String, &'static str), usize>,
}

pub(crate) struct Belief {
    pub(crate) node: usize,
    pub(crate) key: Key,
    pub(crate) token: u64,
    pub(crate) deadlines: Deadlines,
}

/// Something between two times; until now, if it has no end.
pub(crate) struct Bar {
    pub(crate) place: String,
    pub(crate) what: &'static str,
    pub(crate) begin: u64,
    pub(crate) end: Option<u64>,
    /// Of a run: its first lease.
    pub(crate) lease: usize,
}

/// Smaller moves of a deadline are rounding between two clocks.
const MOVED: u64 = 1_000;

fn moved(deadlines: &mut Deadlines, now: u64, left: Option<u64>) {
    // What is over ended at its deadline, or now.
    let before = deadlines.last().map_or(0, |(_, end)| *end);
    let end = left.map_or_else(|| now.min(before), |left| now + left);
    if end.abs_diff(before) > MOVED {
        deadlines.push((now, end));
    }
}

impl Picture {
    /// Looks at the world. `alive` says of each node whether its process exists.
    pub(crate) fn look(&mut self, state: &State, alive: &[bool]) {
        let now = state.now;
        self.delay = state.delay();
        for (key, token, left) in state.all_left() {
            let place = (key.clone(), token);
            if left > 0 || self.kept.contains_key(&place) {
                let left = Some(left).filter(|&left| left > 0);
                moved(self.kept.entry(place).or_default(), now, left);
            }
        }
        for (number, known) in state.leases.all.iter().enumerate() {
            if self.believed.len() == number {
                self.believed.push(Belief {
                    node: known.node,
                    key: known.key.clone(),
                    token: known.token,
                    deadlines: Vec::new(),
                });
            }
            let ppm = state.setup.node_ppm[known.node];
            let left = known.left().filter(|_| state.leases.is_active(number));
            let left = left.map(|left| in_truth(left, ppm));
            moved(&mut self.believed[number].deadlines, now, left);
        }
        for (number, run) in state.runs.all.iter().enumerate() {
            if self.runs.len() == number {
                self.runs.push(Bar {
                    place: format!("node {}", run.node),
                    what: "in progress",
                    begin: now,
                    end: None,
                    lease: run.leases.first().copied().unwrap_or_default(),
                });
            }
            let bar = &mut self.runs[number];
            if bar.end.is_none() {
                if let Some(end) = &run.end {
                    (bar.what, bar.end) = (word(end), Some(now));
                } else if state.lives[run.node] != run.life {
                    (bar.what, bar.end) = ("died with its process", Some(now));
                }
            }
        }
        for (node, &is_alive) in alive.iter().enumerate() {
            let place = format!("node {node}");
            self.fault(now, &place, "stopped", is_alive && state.paused[node]);
            self.fault(now, &place, "dead", !is_alive);
            self.fault(now, &place, "cut off", state.links.is_cut(node));
        }
        for (server, down) in state.links.down.iter().enumerate() {
            self.fault(now, &format!("server {server}"), "down", *down);
        }
    }

    fn fault(&mut self, now: u64, place: &str, what: &'static str, is_on: bool) {
        let known = (place.to_owned(), what);
        match self.open.get(&known).copied() {
            None if is_on => {
                self.open.insert(known, self.faults.len());
                self.mark(place.to_owned(), what, now, None);
            }
            Some(open) if !is_on => {
                self.faults[open].end = Some(now);
                self.open.remove(&known);
            }
            _ => {}
        }
    }

    /// A fault that takes no time.
    pub(crate) fn struck(&mut self, now: u64, node: usize, what: &'static str) {
        self.mark(format!("node {node}"), what, now, Some(now));
    }

    fn mark(&mut self, place: String, what: &'static str, begin: u64, end: Option<u64>) {
        self.faults.push(Bar {
            place,
            what,
            begin,
            end,
            lease: 0,
        });
    }
}

fn word(end: &End) -> &'static str {
    match end {
        End::NotStarted => "not started",
        End::RolledBack => "rolled back",
        End::Incomplete => "incomplete",
        End::Fenced => "fenced",
        End::InDoubt => "in doubt",
        End::CommittedLate { .. } => "committed late",
        End::Committed(_) => "committed",
        End::Panicked => "panicked",
        End::Dropped => "dropped",
    }
}
