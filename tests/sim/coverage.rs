//! [`Coverage`]: which fault met which state, and how often.

use std::collections::BTreeMap;

use crate::net::Op;
use crate::setup::Fault;

/// Cells that no world reaches.
const UNREACHED: [(&str, &str); 10] = [
    (
        "doubled x Fence",
        "a transport to the resource knows its connection",
    ),
    ("doubled x Step", "as above"),
    ("doubled x Undo", "as above"),
    ("doubled x Commit", "as above"),
    ("doubled x Resolve", "as above"),
    ("outage x Fence", "the resource has no outage but a cut"),
    ("outage x Step", "as above"),
    ("outage x Undo", "as above"),
    ("outage x Commit", "as above"),
    ("outage x Resolve", "as above"),
];

/// What worlds on ZooKeeper must show.
const ON_ZOOKEEPER: [&str; 12] = [
    "a container was deleted",
    "a follower was cut off right after its acknowledgement",
    "a new leader was elected",
    "a read was behind",
    "a request came over a connection that was left",
    "a server that was behind its client refused it",
    "a session came with another connection",
    "a session expired",
    "a write without a majority was forgotten",
    "an answer was lost with its connection",
    "handed off",
    "the leader was killed",
];

/// What worlds on Redis must show.
const ON_REDIS: [&str; 17] = [
    "a hold was forgotten",
    "a message granted",
    "a message was a proof",
    "a request was cut",
    "a request was late",
    "a request waited for a paused server",
    "a waiter was called",
    "an answer was cut",
    "an answer was late",
    "bytes were sent again after a cut",
    "handed off",
    "the data were removed",
    "the scripts were removed",
    "the server ended connections",
    "the server was restarted with a snapshot",
    "the server was restarted with all data",
    "the server was restarted without data",
];

/// What worlds on a register must show.
const ON_REGISTER: [&str; 5] = [
    "a bar was over",
    "a dead holder's key was taken over",
    "a key was barred",
    "a write found another version",
    "handed off",
];

/// What worlds of shards must show.
const OF_SHARDS: [&str; 12] = [
    "a lease of a shard was lost",
    "a member came back in the calm",
    "a member left in order",
    "a member was dropped",
    "a membership was revoked",
    "a shard was revoked",
    "all shards are with their owners",
    "two members of one process",
    "work failed",
    "work of a shard was dropped",
    "work was asked to leave",
    "work wrote behind a fence as it left",
];

fn reason(cell: &str) -> Option<&'static str> {
    let known = UNREACHED.iter().find(|(known, _)| *known == cell);
    known.map(|(_, why)| *why)
}

/// What a worker does when a fault meets its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Doing {
    Idle,
    Asking,
    Holding,
    Running,
    Committing,
    Releasing,
}

impl Doing {
    const ALL: [Self; 6] = [
        Self::Idle,
        Self::Asking,
        Self::Holding,
        Self::Running,
        Self::Committing,
        Self::Releasing,
    ];
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Coverage {
    /// A fault of the network, by the request that it met; a fault of a node, by what its workers
    /// were doing.
    pub(crate) cells: BTreeMap<String, u64>,
    /// What must happen sometimes.
    pub(crate) sometimes: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// The cells of fault and state that were not reached and that no reason excuses.
    pub(crate) fn missing(&self) -> Vec<String> {
        use Fault as F;
        let to_net = [
            F::Lost,
            F::AnswerLost,
            F::Doubled,
            F::Slow,
            F::Cut,
            F::Outage,
        ];
        let to_node = [
            F::AimedPause,
            F::Pause,
            F::Crash,
            F::Cut,
            F::Late,
            F::ClockBack,
            F::Suspend,
        ];
        let at_net = to_net
            .iter()
            .flat_map(|fault| Op::ALL.map(|op| format!("{} x {op:?}", fault.name())));
        let at_node = to_node
            .iter()
            .flat_map(|fault| Doing::ALL.map(|doing| format!("{} x {doing:?}", fault.name())));
        let stall = [Doing::Running, Doing::Committing].map(|doing| format!("stall x {doing:?}"));
        let mut missing: Vec<_> = at_net.chain(at_node).chain(stall).collect();
        missing.retain(|cell| !self.cells.contains_key(cell) && reason(cell).is_none());
        missing
    }

    /// What no world on ZooKeeper has shown.
    pub(crate) fn missing_on_zookeeper(&self) -> Vec<String> {
        self.never(&ON_ZOOKEEPER)
    }

    /// What no world on Redis has shown.
    pub(crate) fn missing_on_redis(&self) -> Vec<String> {
        self.never(&ON_REDIS)
    }

    /// What no world on a register has shown.
    pub(crate) fn missing_on_register(&self) -> Vec<String> {
        self.never(&ON_REGISTER)
    }

    /// What no world of shards has shown.
    pub(crate) fn missing_on_shards(&self) -> Vec<String> {
        self.never(&OF_SHARDS)
    }

    fn never(&self, wanted: &[&str]) -> Vec<String> {
        let mut missing: Vec<_> = wanted.iter().map(|what| (*what).to_owned()).collect();
        missing.retain(|what| !self.sometimes.contains_key(what.as_str()));
        missing
    }

    /// One line for each fault, one column for each state.
    pub(crate) fn print(&self) {
        let mut line = String::new();
        for (cell, count) in &self.cells {
            let (fault, state) = cell.split_once(" x ").unwrap_or((cell, ""));
            if line.is_empty() || !line.starts_with(&format!("{fault}:")) {
                if !line.is_empty() {
                    println!("    {line}");
                }
                line = format!("{fault}:");
            }
            line += &format!(" {state} {count}");
        }
        println!("    {line}");
        for (cell, why) in UNREACHED {
            println!("    {cell}: never, {why}");
        }
        for (what, count) in &self.sometimes {
            println!("{count:>9} {what}");
        }
    }

    pub(crate) fn hit(&mut self, fault: Fault, op: Op) {
        *self
            .cells
            .entry(format!("{} x {op:?}", fault.name()))
            .or_default() += 1;
    }

    pub(crate) fn met(&mut self, fault: Fault, doing: Doing) {
        *self
            .cells
            .entry(format!("{} x {doing:?}", fault.name()))
            .or_default() += 1;
    }

    pub(crate) fn sometimes(&mut self, what: &'static str) {
        *self.sometimes.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (cell, count) in &other.cells {
            *self.cells.entry(cell.clone()).or_default() += count;
        }
        for (what, count) in &other.sometimes {
            *self.sometimes.entry(what).or_default() += count;
        }
    }
}
