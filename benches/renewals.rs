//! What a round of renewals costs the engine alone, without a store: the time for each renewal must
//! not grow with the number of holds: `cargo bench --bench renewals`.

#[path = "support/side_by_side.rs"]
#[allow(dead_code, reason = "rounds are not timed call after call")]
mod side_by_side;

use leasehold::clock::Clock;
use leasehold::testing::Renewals;
use side_by_side::SideBySide;

fn main() {
    let clock = Clock::system().expect("a clock");
    let mut renewals = SideBySide::default();
    for holds in [1_000, 10_000, 100_000] {
        let mut engine = Renewals::new(holds);
        let clock = clock.clone();
        // Calls are renewals: whole rounds, at least as many as asked for.
        renewals.timed(format!("one_of_{holds}"), move |calls| {
            let rounds = calls.div_ceil(holds as u64);
            let began = clock.stamp();
            (0..rounds).for_each(|_| {
                engine.round();
            });
            let took = clock.stamp().since(&began);
            took.mul_f64(calls as f64 / (rounds * holds as u64) as f64)
        });
    }
    renewals.run("renewals");
}
