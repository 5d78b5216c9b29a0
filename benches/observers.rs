//! What observers cost: `cargo bench --bench observers`.
//!
//! `run_unwatchable` is a run that has nobody to notify: no manager, no observers. `run_none` is one under a manager without
//! observers, and should cost the same; `run_one` and `hold_one` have one that counts, `run_trace` and `hold_trace` one that
//! traces. The trace drops what its writer cannot keep up with, as a bench makes it.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold::clock::Clock;
use leasehold::handler::{Event, Trace};
use leasehold::store::MemoryStore;
use leasehold::test_util::TestHold;
use leasehold::{Executor, FencingToken, LockManager, Settings};

/// Longer than a whole bench: nothing renews the unwatchable hold.
const TTL: Duration = Duration::from_secs(3_600);

fn manager(watched_by: &str) -> LockManager {
    let builder = LockManager::builder(MemoryStore::new().expect("a clock"));
    let builder = match watched_by {
        "one" => {
            let seen = Arc::new(AtomicU64::new(0));
            builder.observer(move |_: &Event<'_>| {
                seen.fetch_add(1, Ordering::Relaxed);
            })
        }
        "trace" => {
            let clock = Clock::system().expect("the system's clock");
            builder.observer(Trace::with_clock(std::io::sink(), clock).expect("a thread"))
        }
        _ => builder,
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

fn observers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let clock = Clock::system().expect("the system's clock");
    let key = "bench/observers".parse().expect("a key");
    let token = FencingToken::new(1).expect("a token");
    let bare = TestHold::new(clock, &Settings::default(), key, token, TTL);
    let unwatchable = bare.executor();
    let mut group = criterion.benchmark_group("observers");
    group.bench_function("run_unwatchable", |bench| bench.iter(|| run(&unwatchable)));
    // What `lock.run` does for its span, where nobody listens.
    group.bench_function("span_off", |bench| {
        bench.iter(|| {
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
    });
    for name in ["none", "one", "trace"] {
        let locks = manager(name);
        let guard = runtime.block_on(locks.lock("run").acquire());
        let guard = guard.expect("nobody else wants it");
        let executor = guard.executor();
        group.bench_function(format!("run_{name}"), |bench| bench.iter(|| run(&executor)));
        let lock = locks.lock("hold");
        group.bench_function(format!("hold_{name}"), |bench| {
            bench.to_async(&runtime).iter(async || {
                let guard = lock.acquire().await.expect("nobody else wants it");
                guard.release().await
            });
        });
    }
    group.finish();
}

criterion_group!(benches, observers);
criterion_main!(benches);
