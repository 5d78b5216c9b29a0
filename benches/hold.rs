//! What it costs to come to a hold and to end it, on the memory store.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold::LockManager;
use leasehold::store::MemoryStore;

fn hold(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let store = MemoryStore::new().expect("a clock");
    let locks = LockManager::new(store).expect("a manager");
    let lock = locks.lock("a");
    let mut group = c.benchmark_group("hold");
    group.bench_function("acquire_release", |b| {
        b.to_async(&runtime).iter(async || {
            let guard = lock.acquire().await.expect("nobody else wants it");
            guard.release().await
        });
    });
    group.finish();
}

criterion_group!(benches, hold);
criterion_main!(benches);
