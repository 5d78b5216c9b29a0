//! What a guarded run costs: `cargo bench --bench guarded --features test-util`.
//!
//! `floor` is what a run cannot do without: one fast and one strict read of the clocks. The two `two_threads` benches report the
//! time per run of a thread while two of them run; each thread has an executor of its own, so that only the lease differs.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold::clock::Clock;
use leasehold::test_util::{TestHold, read_fast, read_strict};
use leasehold::{Executor, FencingToken, GuardedCell, Settings};

/// Longer than a whole bench: nothing renews here.
const TTL: Duration = Duration::from_secs(3_600);

fn hold(clock: &Clock) -> TestHold {
    let key = "bench/guarded".parse().expect("a key");
    let token = FencingToken::new(1).expect("a token");
    TestHold::new(clock.clone(), &Settings::default(), key, token, TTL)
}

fn noop(executor: &Executor) {
    let done = executor.guarded(|_| Ok(()));
    assert!(black_box(done).is_ok());
}

/// The time that two threads need for `iterations` runs each.
fn two_threads(clock: &Clock, executors: [Executor; 2], iterations: u64) -> Duration {
    let start = Barrier::new(2);
    let measured = std::thread::scope(|threads| {
        let threads = executors.map(|executor| {
            let start = &start;
            threads.spawn(move || {
                start.wait();
                let began = clock.stamp();
                (0..iterations).for_each(|_| noop(&executor));
                clock.stamp().since(&began)
            })
        });
        threads.map(|thread| thread.join().expect("a bench thread"))
    });
    (measured[0] + measured[1]) / 2
}

fn guarded(criterion: &mut Criterion) {
    let clock = Clock::system().expect("the system's clock");
    let held = hold(&clock);
    let executor = held.executor();
    let mut group = criterion.benchmark_group("guarded");

    group.bench_function("floor", |bench| {
        bench.iter(|| (black_box(read_fast(&clock)), black_box(read_strict(&clock))));
    });
    group.bench_function("noop", |bench| bench.iter(|| noop(&executor)));
    group.bench_function("undo_hook", |bench| {
        bench.iter(|| {
            let done = executor.guarded(|tx| {
                tx.undo(|| ());
                Ok(())
            });
            assert!(black_box(done).is_ok());
        });
    });
    let cell = GuardedCell::new(0_u64);
    group.bench_function("cell_write", |bench| {
        bench.iter(|| {
            let done = executor.guarded(|tx| {
                *tx.write(&cell) += 1;
                Ok(())
            });
            assert!(black_box(done).is_ok());
        });
    });

    group.bench_function("two_threads_one_lease", |bench| {
        let executors = || [held.executor(), held.executor()];
        bench.iter_custom(|iterations| two_threads(&clock, executors(), iterations));
    });
    let other = hold(&clock);
    group.bench_function("two_threads_two_leases", |bench| {
        let executors = || [held.executor(), other.executor()];
        bench.iter_custom(|iterations| two_threads(&clock, executors(), iterations));
    });
    group.finish();
}

criterion_group!(benches, guarded);
criterion_main!(benches);
