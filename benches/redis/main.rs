//! What locks in Redis cost, compared with the least that they could cost:
//! `cargo bench --bench redis --features redis`.
//!
//! It starts its own servers, and waits once until their quarantine is over: everything runs with
//! the default settings. The floor and ours alternate in blocks in one run, so that both meet the
//! same noise; each line gives the median of the blocks' ratios with its 95 % interval. Name rows
//! to run only those; `list` prints their names. `rslock` is measured beside ours if it was built:
//! see `peers.rs`.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, on a real machine"
)]

#[path = "../../tests/support/redis.rs"]
mod server;

#[path = "../support/blocks.rs"]
mod blocks;
mod by_hand;
mod contended;
mod counts;
mod crew;
mod fleet;
mod hot;
mod peers;
mod raw;
mod redlock;
mod renew;
mod turns;
mod uncontended;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Instant;

use crate::server::RedisServer;

/// Bytes that are allocated and not freed.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: passes every call to the system's allocator, and only counts.
#[allow(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One row of the table.
struct Row {
    name: &'static str,
    servers: usize,
    run: fn(Vec<RedisServer>),
}

const ROWS: [Row; 14] = [
    row("uncontended", 1, |servers| uncontended::run(&servers)),
    row("redlock5", 5, |servers| redlock::run(&servers)),
    row("contended", 19, contended::run),
    row("fair", 1, |servers| turns::fair(&servers)),
    row("plain", 1, |servers| turns::plain(&servers)),
    row("closed", 1, |servers| turns::closed(&servers)),
    row("round", 1, |servers| counts::round(&servers)),
    row("herd", 1, |servers| counts::herd(&servers)),
    row("left", 1, |servers| counts::left(&servers)),
    row("dials", 0, |servers| counts::dials(&servers)),
    row("unsubscribed", 1, |servers| counts::unsubscribed(&servers)),
    row("tasks", 3, counts::tasks),
    row("hot", 1, |servers| hot::run(&servers)),
    row("renew_10k", 1, |servers| renew::run(&servers)),
];

const fn row(name: &'static str, servers: usize, run: fn(Vec<RedisServer>)) -> Row {
    Row { name, servers, run }
}

fn main() {
    let words: Vec<_> = std::env::args()
        .skip(1)
        .filter(|one| !one.starts_with('-'))
        .collect();
    if let Some((word, rest)) = words.split_first()
        && word == crew::CHILD
    {
        return crew::child(rest);
    }
    if words.iter().any(|word| word == "list") {
        ROWS.iter().for_each(|row| println!("{}", row.name));
        return;
    }
    let is_chosen = |row: &&Row| words.is_empty() || words.iter().any(|word| word == row.name);
    let rows: Vec<_> = ROWS.iter().filter(is_chosen).collect();
    let mut servers = fleet::start(rows.iter().map(|row| row.servers).sum());
    for row in rows {
        let began = Instant::now();
        println!("== {}, load {}", row.name, load());
        (row.run)(servers.drain(..row.servers).collect());
        println!("   ({:.0} s)", began.elapsed().as_secs_f64());
    }
}

/// What else the machine does: its average load of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
