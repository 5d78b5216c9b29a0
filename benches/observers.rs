//! What observers cost: `cargo bench --bench observers`.
//!
//! `run_unwatchable` is a run that has nobody to notify: no manager, no observers. `run_none` is
//! one under a manager without observers, and should cost the same; `run_one` and `hold_one` have
//! one that counts.

#[path = "support/side_by_side.rs"]
mod side_by_side;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::handler::Event;
use leasehold::store::MemoryStore;
use leasehold::testing::TestHold;
use leasehold::{Executor, FencingToken, LockManager, Settings};
use side_by_side::SideBySide;

/// Longer than a whole bench: nothing renews the unwatchable hold.
const TTL: Duration = Duration::from_secs(3_600);

fn manager(is_observed: bool) -> LockManager {
    let builder = LockManager::builder(MemoryStore::new().expect("a clock"));
    let builder = if is_observed {
        let seen = Arc::new(AtomicU64::new(0));
        builder.observer(move |_: &Event<'_>| {
            seen.fetch_add(1, Ordering::Relaxed);
        })
    } else {
        builder
    };
    builder.build().expect("a manager")
}

fn run(executor: &Executor) {
    let done = executor.guarded(|tx| {
        tx.check()?;
        Ok(())
    });
    assert!(black_box(done).is_ok());
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let clock = Clock::system().expect("the system's clock");
    let key = "bench/observers".parse().expect("a key");
    let token = FencingToken::new(1).expect("a token");
    let bare = TestHold::new(clock, &Settings::default(), key, token, TTL);
    let unwatchable = bare.executor();

    let mut runs = SideBySide::default();
    runs.row("run_unwatchable", || run(&unwatchable));
    // What `lock.run` does for its span, where nobody listens.
    runs.row("span_off", || {
        let span = tracing::debug_span!(
            "lock.run",
            key = %bare.lease().key(),
            token = %bare.lease().token(),
            outcome = tracing::field::Empty,
        );
        let entered = span.enter();
        black_box(&span);
        drop(entered);
        if !span.is_disabled() {
            span.record("outcome", "committed");
        }
    });
    let mut holds = SideBySide::default();
    let managers = [("none", manager(false)), ("one", manager(true))];
    let guards = managers.each_ref().map(|(name, locks)| {
        let guard = runtime.block_on(locks.lock("run").acquire());
        (name, guard.expect("nobody else wants it"))
    });
    for (name, guard) in &guards {
        let executor = guard.executor();
        runs.row(format!("run_{name}"), move || run(&executor));
    }
    for (name, locks) in &managers {
        let lock = locks.lock("hold");
        let runtime = &runtime;
        holds.row(format!("hold_{name}"), move || {
            runtime.block_on(async {
                let guard = lock.acquire().await.expect("nobody else wants it");
                guard.release().await
            })
        });
    }
    runs.run("runs");
    holds.run("holds");
}
