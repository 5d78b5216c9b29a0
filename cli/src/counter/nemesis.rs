//! [`Nemesis`]: stops our own counting processes for longer than their TTL, one after the other,
//! and lets them go on.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::store::{Capability, Fencing};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exit::Failure;

/// Short, so that a stopped process exceeds it soon. Where the store has one ttl for all locks,
/// that is what it is.
const TTL: Duration = Duration::from_secs(1);

/// Works until it is dropped.
#[derive(Debug)]
pub(super) struct Nemesis {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<usize>>,
}

/// Whether a store of this URL has a fence that refuses a process that was stopped.
pub(super) fn check_url(url: &str) -> Result<(), Failure> {
    match scheme(url) {
        // The counter is read over connections of its own.
        "postgres" | "postgresql" if url.contains("sslmode=verify-full") => Err(refusal(
            "over TLS this tool cannot count in PostgreSQL; leave sslmode out",
        )),
        "redis" | "rediss" | "unix" | "postgres" | "postgresql" => Ok(()),
        "zookeeper" if url.contains("driver=zookeeper-async") => Err(refusal(
            "the driver zookeeper-async cannot send a fenced write",
        )),
        "zookeeper" => Ok(()),
        scheme => Err(refusal(&format!(
            "store={scheme} has none that this tool can count behind"
        ))),
    }
}

/// The ttl of a run with a nemesis, unless the user gives one.
pub(super) fn ttl(url: &str) -> Option<Duration> {
    (scheme(url) != "zookeeper").then_some(TTL)
}

fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

/// Whether its tokens can be fenced with.
pub(super) fn check(capability: &Capability) -> Result<(), Failure> {
    match capability.fencing {
        Fencing::Monotonic => Ok(()),
        _ => Err(refusal(
            "this server replicates asynchronously, so its tokens may decrease",
        )),
    }
}

fn refusal(why: &str) -> Failure {
    Failure::usage(format!(
        "--nemesis pause needs a fence at the counter: {why}; without one a process that was stopped writes late, and updates are lost; use it on one Redis server, in PostgreSQL, or on ZooKeeper"
    ))
}

impl Nemesis {
    pub(super) fn pause(processes: Vec<Pid>, ttl: Duration) -> Self {
        let (stop, is_over) = channel();
        let thread = std::thread::spawn(move || work(&processes, ttl, &is_over));
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Ends it. How many times it stopped a process.
    pub(super) fn end(mut self) -> usize {
        drop(self.stop.take());
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

fn work(processes: &[Pid], ttl: Duration, is_over: &Receiver<()>) -> usize {
    let waits = |span| is_over.recv_timeout(span) == Err(RecvTimeoutError::Timeout);
    let mut pauses = 0;
    for process in processes.iter().cycle() {
        if !waits(ttl / 2) {
            break;
        }
        // A process that has ended is not ours to wait for here, and cannot be stopped.
        if kill(*process, Signal::SIGSTOP).is_err() {
            continue;
        }
        pauses += 1;
        let goes_on = waits(ttl * 3 / 2);
        let _ = kill(*process, Signal::SIGCONT);
        if !goes_on {
            break;
        }
    }
    pauses
}
