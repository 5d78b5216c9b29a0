//! Blocks of the floor and of ours in turn, and what their ratios show.

use std::time::{Duration, Instant};

pub(crate) const BLOCKS: usize = 31;
/// No row alternates for longer than this, even if it then has fewer blocks.
const BUDGET: Duration = Duration::from_secs(150);

/// What a ratio has to be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(crate) fn verdict(self, value: f64) -> String {
        let (sign, goal, is_reached) = match self {
            Self::None => return String::new(),
            Self::AtMost(goal) => ("<=", goal, value <= goal),
            Self::AtLeast(goal) => (">=", goal, value >= goal),
        };
        let verdict = if is_reached { "reached" } else { "MISSED" };
        format!("  goal {sign} {goal}: {verdict}")
    }
}

/// One figure of each side for each block.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(crate) floors: Vec<f64>,
    pub(crate) ours: Vec<f64>,
}

/// The time that `work` takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = Instant::now();
    let done = work();
    (done, before.elapsed())
}

/// Alternates blocks of the floor and of ours, after one of each to warm up.
pub(crate) fn alternate(mut floor: impl FnMut() -> f64, mut ours: impl FnMut() -> f64) -> Blocks {
    let began = Instant::now();
    let _ = (floor(), ours());
    let mut blocks = Blocks::default();
    for block in 0..BLOCKS {
        if began.elapsed() > BUDGET {
            break;
        }
        // Whoever goes second meets a warmer machine: each goes second in turn.
        let (one, other) = if block % 2 == 0 {
            let one = floor();
            (one, ours())
        } else {
            let other = ours();
            (floor(), other)
        };
        blocks.floors.push(one);
        blocks.ours.push(other);
    }
    blocks
}

impl Blocks {
    /// Prints the median of the ratios with its interval, and the medians of both sides.
    pub(crate) fn print(&self, name: &str, goal: Goal, unit: &str) {
        let both = self.ours.iter().zip(&self.floors);
        let mut ratios: Vec<_> = both.map(|(ours, floor)| ours / floor).collect();
        let count = ratios.len();
        let (low, middle, high) = interval(&mut ratios);
        let median = |values: &[f64]| interval(&mut values.to_vec()).1;
        println!(
            "{name:<52} {middle:.3} [{low:.3}, {high:.3}] of {count} blocks  floor {:.1} {unit}, ours {:.1} {unit}{}",
            median(&self.floors),
            median(&self.ours),
            goal.verdict(middle)
        );
    }
}

/// Alternates blocks that are timed, of `rounds` each.
pub(crate) fn compare(
    name: &str,
    goal: Goal,
    rounds: u32,
    mut floor: impl FnMut() -> Duration,
    mut ours: impl FnMut() -> Duration,
) {
    let each = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(rounds);
    let blocks = alternate(|| each(floor()), || each(ours()));
    blocks.print(name, goal, "us");
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

/// The value that this part of all values does not exceed.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = (part * last as f64).ceil() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}
