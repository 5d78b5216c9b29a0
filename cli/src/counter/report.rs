//! [`Report`]: the final counter against what was counted, and how the turns were shared out.

use std::time::Duration;

use serde_json::{Value, json};

use super::round::{Outcome, Round};
use super::turns::TurnShares;
use crate::output::{millis, span};

#[derive(Debug)]
pub(super) struct Report {
    pub(super) took: Duration,
    /// The value of the counter.
    pub(super) counted: u64,
    pub(super) rounds: Vec<Round>,
    pub(super) processes: usize,
    /// How many tasks each process had.
    pub(super) tasks: usize,
    /// How often the nemesis stopped a process, if there was one.
    pub(super) pauses: Option<usize>,
}

impl Report {
    /// Updates that were written and are not in the counter. One that is in doubt may hide one that
    /// is lost: so two rounds that wrote the same number are one lost, too.
    pub(super) fn lost(&self) -> u64 {
        let missing = (self.successes(None) as u64).saturating_sub(self.counted);
        let mut written: Vec<u64> = self
            .rounds
            .iter()
            .filter_map(|round| round.counted)
            .collect();
        written.sort_unstable();
        let twice = written.windows(2).filter(|pair| pair[0] == pair[1]).count();
        missing.max(twice as u64)
    }

    fn successes(&self, process: Option<usize>) -> usize {
        self.count(process, |outcome| *outcome == Outcome::Counted)
    }

    fn unknown(&self, process: Option<usize>) -> usize {
        self.count(process, |outcome| matches!(outcome, Outcome::Unknown(_)))
    }

    fn failures(&self, process: Option<usize>) -> usize {
        self.count(process, |outcome| matches!(outcome, Outcome::NotCounted(_)))
    }

    fn count(&self, process: Option<usize>, which: impl Fn(&Outcome) -> bool) -> usize {
        let of = |round: &&Round| process.is_none_or(|process| process == round.process);
        let rounds = self.rounds.iter().filter(of);
        rounds.filter(|round| which(&round.outcome)).count()
    }

    /// The wait that so many of a hundred rounds did not exceed.
    fn wait(&self, percent: usize) -> Duration {
        let mut waits: Vec<_> = self.rounds.iter().map(|round| round.wait).collect();
        waits.sort_unstable();
        let rank = (waits.len() * percent).div_ceil(100).max(1);
        waits.get(rank - 1).copied().unwrap_or_default()
    }

    fn per_second(&self) -> f64 {
        self.successes(None) as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    fn turns(&self) -> TurnShares {
        TurnShares::of(&self.rounds, self.processes * self.tasks)
    }

    /// How many commits ended after their lease, and how late the latest did.
    fn late(&self) -> (usize, Duration) {
        let late = self.rounds.iter().filter_map(|round| round.late_by);
        let count = late.clone().count();
        (count, late.max().unwrap_or_default())
    }

    pub(super) fn people(&self) -> String {
        let mut lines: Vec<String> = (0..self.processes)
            .map(|process| {
                format!(
                    "process {process}: {} counted, {} failed{}",
                    self.successes(Some(process)),
                    self.failures(Some(process)),
                    doubt(self.unknown(Some(process))),
                )
            })
            .collect();
        let turns = self.turns();
        lines.extend([
            format!(
                "counter   {} of {} counted{}, {} updates lost",
                self.counted,
                self.successes(None),
                doubt(self.unknown(None)),
                self.lost()
            ),
            format!(
                "speed     {:.0} rounds a second, {} in all",
                self.per_second(),
                span(self.took)
            ),
            format!(
                "wait      p50 {}, p99 {}",
                span(self.wait(50)),
                span(self.wait(99))
            ),
            format!(
                "fairness  {} % of turns went to another process, at most {} in a row to one, at most {} of a grant",
                turns.changed_percent, turns.longest_row, turns.most_of_a_grant
            ),
            format!(
                "tasks     {} of {} had a turn, each {} to {}; the longest without one: {}",
                turns.served,
                self.processes * self.tasks,
                turns.fewest,
                turns.most,
                span(turns.longest_gap)
            ),
        ]);
        if let (late @ 1.., late_by) = self.late() {
            lines.push(format!(
                "late      {late} commits ended after their lease, by {} at most: the process stood still between its check and the end of its write; they are written, and another holder may have been in by then, which only a fence at the counter would keep out",
                span(late_by)
            ));
        }
        if let Some(pauses) = self.pauses {
            lines.push(format!(
                "nemesis   stopped a process {pauses} times, beyond its ttl"
            ));
        }
        if let Some(why) = self.first_failure() {
            lines.push(format!("first failure: {why}"));
        }
        lines.join("\n")
    }

    pub(super) fn scripts(&self) -> Value {
        let processes: Vec<Value> = (0..self.processes)
            .map(|process| {
                json!({
                    "counted": self.successes(Some(process)),
                    "failed": self.failures(Some(process)),
                    "unknown": self.unknown(Some(process)),
                })
            })
            .collect();
        let turns = self.turns();
        let (late, late_by) = self.late();
        json!({
            "processes": processes,
            "counter": self.counted,
            "counted": self.successes(None),
            "failed": self.failures(None),
            "unknown": self.unknown(None),
            "lost": self.lost(),
            "took_ms": millis(self.took),
            "rounds_per_second": self.per_second(),
            "wait_p50_ms": self.wait(50).as_secs_f64() * 1e3,
            "wait_p99_ms": self.wait(99).as_secs_f64() * 1e3,
            "turns_changed_percent": turns.changed_percent,
            "longest_row": turns.longest_row,
            "most_of_a_grant": turns.most_of_a_grant,
            "tasks": self.processes * self.tasks,
            "served": turns.served,
            "fewest_turns": turns.fewest,
            "most_turns": turns.most,
            "longest_gap_ms": millis(turns.longest_gap),
            "late": late,
            "late_by_ms": millis(late_by),
            "pauses": self.pauses,
            "first_failure": self.first_failure(),
        })
    }

    fn first_failure(&self) -> Option<&str> {
        self.rounds.iter().find_map(|round| match &round.outcome {
            Outcome::Counted => None,
            Outcome::NotCounted(why) | Outcome::Unknown(why) => Some(why.as_str()),
        })
    }
}

fn doubt(unknown: usize) -> String {
    match unknown {
        0 => String::new(),
        unknown => format!(", {unknown} in doubt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(processes: &[usize], counted: u64) -> Report {
        let rounds = processes.iter().enumerate().map(|(turn, &process)| Round {
            process,
            task: 0,
            outcome: Outcome::Counted,
            asked: Duration::ZERO,
            wait: Duration::from_millis(turn as u64 + 1),
            token: None,
            counted: Some(turn as u64 + 1),
            late_by: None,
        });
        Report {
            took: Duration::from_secs(2),
            counted,
            rounds: rounds.collect(),
            processes: 2,
            tasks: 1,
            pauses: None,
        }
    }

    #[test]
    fn what_was_written_and_is_not_in_the_counter_is_lost() {
        assert_eq!(report(&[0, 1, 0, 1], 4).lost(), 0);
        assert_eq!(report(&[0, 1, 0, 1], 3).lost(), 1);
        let mut in_doubt = report(&[0, 1, 0, 1], 3);
        in_doubt.rounds[0].outcome = Outcome::Unknown("no answer".to_owned());
        in_doubt.rounds[0].counted = None;
        assert_eq!(in_doubt.lost(), 0);
        in_doubt.rounds[1].counted = Some(3);
        assert_eq!(in_doubt.lost(), 1);
    }

    #[test]
    fn a_late_commit_is_counted_printed_and_explained() {
        let mut report = report(&[0, 1], 2);
        assert!(!report.people().contains("late"), "{}", report.people());
        report.rounds[1].late_by = Some(Duration::from_millis(12));
        assert_eq!(report.lost(), 0);
        let reported = report.people();
        assert!(
            reported.contains("1 commits ended after their lease, by 12ms"),
            "{reported}"
        );
        assert_eq!(report.scripts()["late"], 1);
    }

    #[test]
    fn a_percentile_is_a_wait_that_was_waited() {
        let report = report(&[0; 100], 100);
        assert_eq!(report.wait(50), Duration::from_millis(50));
        assert_eq!(report.wait(99), Duration::from_millis(99));
        assert!((report.per_second() - 50.0).abs() < 1e-9);
    }
}
