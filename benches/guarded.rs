//! What a guarded run costs: `cargo bench --bench guarded`.
//!
//! `floor` is what a run cannot do without: one fast and one strict read of the clocks. The two
//! `two_threads` benches report the time per run of a thread while two of them run; each thread has
//! an executor of its own, so that only the lease differs.

#[path = "support/side_by_side.rs"]
mod side_by_side;

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::testing::{TestHold, read_fast, read_strict};
use leasehold::{Executor, FencingToken, GuardedCell, Settings};
use side_by_side::SideBySide;

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

fn main() {
    let clock = Clock::system().expect("the system's clock");
    let held = hold(&clock);
    let executor = held.executor();
    let cell = GuardedCell::new(0_u64);
    let other = hold(&clock);

    let mut guarded = SideBySide::default();
    guarded.row("floor", || (read_fast(&clock), read_strict(&clock)));
    guarded.row("noop", || noop(&executor));
    guarded.row("undo_hook", || {
        let done = executor.guarded(|tx| {
            tx.undo(|| ());
            Ok(())
        });
        assert!(black_box(done).is_ok());
    });
    guarded.row("cell_write", || {
        let done = executor.guarded(|tx| {
            *tx.write(&cell) += 1;
            Ok(())
        });
        assert!(black_box(done).is_ok());
    });
    guarded.timed("two_threads_one_lease", |runs| {
        two_threads(&clock, [held.executor(), held.executor()], runs)
    });
    guarded.timed("two_threads_two_leases", |runs| {
        two_threads(&clock, [held.executor(), other.executor()], runs)
    });
    guarded.run("guarded");
}
