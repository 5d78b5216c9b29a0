//! Things that are timed in turn, block by block, so that a busy machine slows them alike. The
//! first one is the floor: the table has the median time of each call, and the median of its ratios
//! to the floor with a 95 % interval.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, on a real machine"
)]

#[path = "blocks.rs"]
#[allow(dead_code, reason = "the benches of the stores use more of it")]
mod blocks;

use std::time::{Duration, Instant};

use blocks::{BLOCKS, interval};

/// How long a block is to take.
const BLOCK: Duration = Duration::from_millis(10);

/// The time that so many calls take.
type Timed<'a> = Box<dyn FnMut(u64) -> Duration + 'a>;

struct Row<'a> {
    name: String,
    timed: Timed<'a>,
    calls: u64,
    /// Nanoseconds a call, one figure a block.
    spans: Vec<f64>,
}

#[derive(Default)]
pub(crate) struct SideBySide<'a> {
    rows: Vec<Row<'a>>,
}

impl<'a> SideBySide<'a> {
    /// One more thing to time, call after call.
    pub(crate) fn row<T>(&mut self, name: impl Into<String>, mut call: impl FnMut() -> T + 'a) {
        self.timed(name, move |calls| {
            let began = Instant::now();
            for _ in 0..calls {
                std::hint::black_box(call());
            }
            began.elapsed()
        });
    }

    /// One more thing that measures by itself how long so many calls take.
    pub(crate) fn timed(
        &mut self,
        name: impl Into<String>,
        timed: impl FnMut(u64) -> Duration + 'a,
    ) {
        self.rows.push(Row {
            name: name.into(),
            timed: Box::new(timed),
            calls: 1,
            spans: Vec::new(),
        });
    }

    /// Runs all in turn and prints the table.
    pub(crate) fn run(mut self, title: &str) {
        // `cargo test --benches` asks every bench for a short run.
        let is_test = std::env::args().any(|argument| argument == "--test");
        if !is_test {
            self.rows.iter_mut().for_each(Row::calibrate);
        }
        for _ in 0..if is_test { 1 } else { BLOCKS } {
            self.rows.iter_mut().for_each(Row::block);
        }
        println!("{title}");
        let floor = self.rows.first().map(|row| row.spans.clone());
        for row in &self.rows {
            row.print(floor.as_deref().unwrap_or_default());
        }
    }
}

impl Row<'_> {
    /// Doubles the calls of a block until it takes long enough.
    fn calibrate(&mut self) {
        while (self.timed)(self.calls) < BLOCK {
            self.calls *= 2;
        }
    }

    fn block(&mut self) {
        let took = (self.timed)(self.calls);
        self.spans
            .push(took.as_secs_f64() * 1e9 / self.calls as f64);
    }

    fn print(&self, floor: &[f64]) {
        let both = self.spans.iter().zip(floor);
        let mut ratios: Vec<_> = both.map(|(span, floor)| span / floor).collect();
        let (low, middle, high) = interval(&mut ratios);
        let (_, span, _) = interval(&mut self.spans.clone());
        println!(
            "  {:<28} {span:>12.1} ns  {middle:>7.2} [{low:.2}, {high:.2}]",
            self.name
        );
    }
}
