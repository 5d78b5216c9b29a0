//! [`Event`]: what a worker process did, one JSON line each, flushed before it acts.

use std::io::Write;

use leasehold::clock::{Clock, ClockKind, Stamp};
use serde::{Deserialize, Serialize};

/// A place in a worker where a fault can be aimed.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Point {
    /// The lock is held, and the run has not begun.
    Held,
    /// Between the library's last check and the send of the commit.
    Commit,
    /// The commit is on its way.
    InCommit,
    /// The release was asked for: it is on its way, or was so fast that it is done.
    InRelease,
}

/// How a run ended, as the library reports it.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    Committed,
    CommittedLate,
    /// Rolled back, or never begun.
    NotApplied,
    Fenced,
    /// In doubt, or incomplete.
    Unknown,
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub enum What {
    Ready,
    Ask,
    /// No lock came: busy, or a failure.
    Denied(String),
    Held {
        hold: u64,
        token: u64,
        deadline: u64,
    },
    /// A renewal moved the deadline.
    Deadline {
        hold: u64,
        deadline: u64,
    },
    /// The lease is over; it was last seen alive then.
    Over {
        hold: u64,
        alive: u64,
    },
    /// The commit is about to be sent.
    Commit {
        hold: u64,
        txn: String,
    },
    Outcome {
        txn: String,
        outcome: Outcome,
        why: String,
    },
    /// The release is about to be called.
    Release {
        hold: u64,
    },
    /// That release said that the lock is free.
    Released {
        hold: u64,
    },
    /// A run read the counter, which it began to ask for at `from`.
    Read {
        from: u64,
        number: u64,
    },
    /// The library reports a lost lease.
    Lost {
        ttl_ms: u64,
        reason: String,
    },
    /// It is where a fault was aimed, and stops itself, or not.
    At(Point),
    Gauge {
        rss_kib: u64,
        descriptors: u64,
        threads: u64,
        tasks: u64,
    },
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Event {
    /// Nanoseconds of the boot clock, comparable between processes.
    pub t: u64,
    /// The process; a process that was started again has another number.
    pub p: u32,
    pub task: u32,
    pub what: What,
}

/// A time of the boot clock.
pub fn nanos(stamp: &Stamp) -> u64 {
    stamp.on(ClockKind::Boot)
}

pub fn now(clock: &Clock) -> u64 {
    nanos(&clock.stamp())
}

/// Writes a line. A worker whose driver is gone ends.
pub fn emit(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("an event is JSON");
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
