//! Blocks of the floor and of ours in turn, and what their ratios tell.

use std::time::Duration;

use leasehold::clock::{Clock, ClockKind};

const BLOCKS: usize = 41;

/// The time that `work` takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let clock = Clock::system().expect("the machine's clocks");
    let before = clock.stamp().on(ClockKind::Raw);
    let done = work();
    let after = clock.stamp().on(ClockKind::Raw);
    (done, Duration::from_nanos(after - before))
}

/// Alternates blocks of the floor and of ours, and prints the median ratio and what was to be reached.
pub(crate) fn compare(
    name: &str,
    goal: Option<f64>,
    rounds: u32,
    mut floor: impl FnMut() -> Duration,
    mut ours: impl FnMut() -> Duration,
) {
    let (mut ratios, mut floors, mut all_ours) = (Vec::new(), Vec::new(), Vec::new());
    // One block of each to warm up.
    let _ = (floor(), ours());
    for block in 0..BLOCKS {
        // Whoever goes second meets a warmer machine: each goes second in turn.
        let (one, other) = if block % 2 == 0 {
            let one = floor();
            (one, ours())
        } else {
            let other = ours();
            (floor(), other)
        };
        ratios.push(other.as_secs_f64() / one.as_secs_f64());
        floors.push(one.as_secs_f64() * 1e6 / f64::from(rounds));
        all_ours.push(other.as_secs_f64() * 1e6 / f64::from(rounds));
    }
    let (low, middle, high) = interval(&mut ratios);
    let (_, floor, _) = interval(&mut floors);
    let (_, ours, _) = interval(&mut all_ours);
    let goal = goal.map_or(String::new(), |goal| {
        format!(
            "  goal {goal:.2}: {}",
            if middle <= goal { "reached" } else { "MISSED" }
        )
    });
    println!(
        "{name:<44} {middle:.3} [{low:.3}, {high:.3}]  floor {floor:.1} us, ours {ours:.1} us{goal}"
    );
}

/// The median and its 95 % interval, by the binomial distribution of ranks.
pub(crate) fn interval(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let half = 0.98 * count.sqrt();
    let low = ((count / 2.0 - half).floor().max(0.0)) as usize;
    let high = ((count / 2.0 + half).ceil() as usize).min(values.len() - 1);
    (values[low], values[values.len() / 2], values[high])
}
