//! [`Progress`]: a bar on a terminal; nothing in a pipe, or for scripts.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::plan::Until;
use crate::output::Output;

const WIDTH: usize = 40;

#[derive(Debug)]
pub(super) struct Progress {
    until: Until,
    tasks: usize,
    rounds: usize,
    shown: Option<usize>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn of(until: Until, tasks: usize, output: Output) -> Self {
        Self {
            until,
            tasks,
            rounds: 0,
            shown: None,
            is_shown: !output.json && std::io::stderr().is_terminal(),
        }
    }

    /// One more round, that long after its process began.
    pub(super) fn one_more(&mut self, at: Duration) {
        self.rounds += 1;
        let (done, expected) = match self.until {
            Until::Rounds(each) => (self.rounds, self.tasks * each as usize),
            Until::Time(span) => {
                let span = span.as_millis() as usize;
                ((at.as_millis() as usize).min(span), span)
            }
        };
        let percent = done * 100 / expected.max(1);
        // Processes report the same time in any order.
        if self.is_shown && self.shown < Some(percent) {
            self.shown = Some(percent);
            let unit = match self.until {
                Until::Rounds(_) => "",
                Until::Time(_) => " ms",
            };
            let _ = write!(std::io::stderr(), "\r{}{unit}", bar(done, expected));
        }
    }

    pub(super) fn done(&self) {
        if self.shown.is_some() {
            let _ = writeln!(std::io::stderr());
        }
    }
}

fn bar(done: usize, expected: usize) -> String {
    let full = done * WIDTH / expected.max(1);
    let (full, empty) = ("#".repeat(full), ".".repeat(WIDTH - full));
    format!("[{full}{empty}] {done}/{expected}")
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_bar_is_as_wide_at_its_end_as_at_its_beginning() {
        assert_eq!(bar(0, 10), format!("[{}] 0/10", ".".repeat(40)));
        assert_eq!(
            bar(5, 10),
            format!("[{}{}] 5/10", "#".repeat(20), ".".repeat(20))
        );
        assert_eq!(bar(10, 10), format!("[{}] 10/10", "#".repeat(40)));
    }
}
