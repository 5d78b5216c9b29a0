//! What locks in Redis cost, compared with the least that they could cost: `cargo bench --bench redis --features redis`.
//!
//! It starts its own servers. The floor and ours alternate in blocks in one run, so that both meet the same noise; each
//! line gives the median of the blocks' ratios with its 95 % interval. Name a part to run only that:
//! `uncontended`, `redlock5`, `contended`, `renew_10k`, `handoff`, `hot`.

#[path = "../../tests/support/redis.rs"]
mod server;

mod blocks;
mod contended;
mod handoff;
mod hot;
mod raw;
mod redlock;
mod renew;
mod uncontended;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// Bytes that are allocated and not freed.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: hands every call on to the system's allocator, and only counts.
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

fn main() {
    let arguments: Vec<_> = std::env::args()
        .skip(1)
        .filter(|one| !one.starts_with('-'))
        .collect();
    if let [word, url] = &arguments[..]
        && word == handoff::CHILD
    {
        return handoff::child(url);
    }
    let parts: [(&str, fn()); 6] = [
        ("uncontended", uncontended::run),
        ("redlock5", redlock::run),
        ("contended", contended::run),
        ("renew_10k", renew::run),
        ("handoff", handoff::run),
        ("hot", hot::run),
    ];
    for (name, run) in parts {
        if arguments.is_empty() || arguments.iter().any(|one| one == name) {
            run();
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
