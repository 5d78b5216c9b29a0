//! What a check costs: one clock read and one load, beside what is often used in its place.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold::LockManager;
use leasehold::clock::{Clock, ClockKind};
use leasehold::store::MemoryStore;
use leasehold::test_util::{read_fast, read_strict};
use parking_lot::Mutex;
use tokio::sync::watch;

fn check(c: &mut Criterion) {
    let clock = Clock::system().expect("a clock");
    let mut group = c.benchmark_group("check");

    group.bench_function("floor_fast_clock", |b| b.iter(|| read_fast(&clock)));
    group.bench_function("floor_strict_clock", |b| b.iter(|| read_strict(&clock)));

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let store = MemoryStore::new().expect("a clock");
    let locks = LockManager::new(store).expect("a manager");
    let guard = runtime
        .block_on(locks.lock("a").acquire())
        .expect("nobody else wants it");
    let lease = guard.lease().clone();
    assert_eq!(
        read_fast(&clock).0,
        ClockKind::Fast,
        "another clock is measured"
    );
    group.bench_function("lease_is_live", |b| b.iter(|| black_box(&lease).is_live()));
    assert!(
        lease.is_live(),
        "the lease ended on the way, and its end was measured"
    );

    // An event that is looked at: what it says is as old as its sender is late.
    let (_sender, receiver) = watch::channel(true);
    group.bench_function("tokio_watch_borrow", |b| {
        b.iter(|| *black_box(&receiver).borrow());
    });

    group.bench_function("mutex_instant", mutex_instant);
    group.finish();
}

/// The deadline as most libraries keep it.
#[allow(
    clippy::disallowed_methods,
    reason = "the clock that is measured against"
)]
fn mutex_instant(b: &mut criterion::Bencher<'_>) {
    let deadline = Mutex::new(Instant::now() + Duration::from_secs(3_600));
    b.iter(|| Instant::now() < *black_box(&deadline).lock());
}

criterion_group!(benches, check);
criterion_main!(benches);
