//! What a round of renewals costs the engine alone, without a store: the time per renewal must not grow with the number of
//! holds.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use leasehold::test_util::Renewals;

fn renewals(c: &mut Criterion) {
    let mut group = c.benchmark_group("renewals");
    for holds in [1_000, 10_000, 100_000] {
        group.throughput(Throughput::Elements(holds));
        group.bench_with_input(BenchmarkId::from_parameter(holds), &holds, |b, &holds| {
            let mut engine = Renewals::new(holds as usize);
            b.iter_batched(|| (), |()| engine.round(), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, renewals);
criterion_main!(benches);
