//! From a release in one process to the start of the critical section in another, in round trips of the same machine in
//! the same state: it has slept for a while before each of either.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use leasehold::LockManager;
use leasehold::clock::{Clock, ClockKind};
use leasehold::store::RedisStore;

use crate::blocks::{interval, timed};
use crate::server::{RedisServer, pause};
use crate::{raw, runtime};

pub(crate) const CHILD: &str = "handoff-child";
const BLOCKS: usize = 33;
const ROUNDS: usize = 6;
const KEY: &str = "handed";

fn now() -> u64 {
    let clock = Clock::system().expect("the machine's clocks");
    // One clock for all processes of the machine.
    clock.stamp().on(ClockKind::Raw)
}

fn locks(url: &str, runtime: &tokio::runtime::Runtime) -> LockManager {
    let store = runtime.block_on(RedisStore::connect(url)).expect("a store");
    LockManager::new(store).expect("a manager")
}

/// The other process: for each line it acquires, tells when it had the lock, and releases.
pub(crate) fn child(url: &str) {
    let runtime = runtime();
    let locks = locks(url, &runtime);
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        let guard = runtime
            .block_on(locks.lock(KEY).acquire())
            .expect("its turn");
        println!("{}", now());
        drop(runtime.block_on(guard.release()));
    }
}

pub(crate) fn run() {
    let server = RedisServer::start();
    let url = server.url("restart_quarantine=off");
    let runtime = runtime();
    let locks = locks(&url, &runtime);
    let mut other = Command::new(std::env::current_exe().expect("this program"))
        .args([CHILD, &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut orders = other.stdin.take().expect("its input");
    let mut told = BufReader::new(other.stdout.take().expect("its output")).lines();

    let mut connection = runtime.block_on(raw::connect(server.port()));
    let hash = runtime.block_on(raw::load(&mut connection, raw::RELEASE));
    let mut handoff = || {
        let guard = runtime
            .block_on(locks.lock(KEY).acquire())
            .expect("it is free");
        orders.write_all(b"\n").expect("it reads");
        // It has asked, was told to wait, has subscribed, and has asked again.
        while server
            .cli(&["PUBSUB", "NUMSUB", &format!("{{{KEY}}}:free")])
            .ends_with('0')
        {
            pause();
        }
        rest();
        let released_at = now();
        drop(runtime.block_on(guard.release()));
        let had_at: u64 = told
            .next()
            .expect("it tells")
            .expect("a line")
            .parse()
            .expect("a time");
        had_at.saturating_sub(released_at) as f64 / 1e3
    };
    let mut trip = || {
        runtime.block_on(raw::set(&mut connection, "trip"));
        rest();
        let trip = timed(|| runtime.block_on(raw::release(&mut connection, &hash, "trip")));
        trip.1.as_secs_f64() * 1e6
    };
    let (mut ratios, mut trips, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BLOCKS {
        let mut block: Vec<_> = (0..ROUNDS).map(|_| (handoff(), trip())).collect();
        let mut median = |part: fn(&(f64, f64)) -> f64| {
            block.sort_by(|a, b| part(a).total_cmp(&part(b)));
            part(&block[ROUNDS / 2])
        };
        let (wait, trip) = (median(|both| both.0), median(|both| both.1));
        ratios.push(wait / trip);
        waits.push(wait);
        trips.push(trip);
    }
    drop(orders);
    other.wait().expect("its end");
    let (_, trip, _) = interval(&mut trips);
    let (_, wait, _) = interval(&mut waits);
    let (low, ratio, high) = interval(&mut ratios);
    let goal = if ratio <= 3.0 { "reached" } else { "MISSED" };
    println!(
        "handoff, p50 / one round trip                 {ratio:.3} [{low:.3}, {high:.3}]  round trip {trip:.1} us, hand-off {wait:.1} us  goal 3.00: {goal}"
    );
}

/// Long enough for everybody to fall asleep.
fn rest() {
    for _ in 0..3 {
        pause();
    }
}
