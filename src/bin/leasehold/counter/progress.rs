//! [`Progress`]: a bar on a terminal, nothing in a pipe.

use std::io::{IsTerminal, Write};

const WIDTH: usize = 40;

#[derive(Debug)]
pub(super) struct Progress {
    expected: usize,
    done: usize,
    shown: Option<usize>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn of(expected: usize) -> Self {
        Self {
            expected,
            done: 0,
            shown: None,
            is_shown: std::io::stderr().is_terminal(),
        }
    }

    pub(super) fn one_more(&mut self) {
        self.done += 1;
        let percent = self.done * 100 / self.expected.max(1);
        if self.is_shown && self.shown != Some(percent) {
            self.shown = Some(percent);
            let _ = write!(std::io::stderr(), "\r{}", bar(self.done, self.expected));
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
