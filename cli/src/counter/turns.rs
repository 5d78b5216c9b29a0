//! [`TurnShares`]: how the turns were shared out, over processes and over their tasks. A turn is a
//! hold, whatever came of it.

use std::collections::HashMap;
use std::time::Duration;

use super::round::Round;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TurnShares {
    /// How many of a hundred turns went to another process than the turn before, in the order of
    /// the counter.
    pub(super) changed_percent: u64,
    /// The most turns that one process had in a row, counted until the first process had its last
    /// turn.
    pub(super) longest_row: usize,
    /// The most turns in a row under one grant of the store: handoffs within a process.
    pub(super) most_of_a_grant: usize,
    /// How many tasks had a turn.
    pub(super) served: usize,
    /// The turns of the task that had the fewest, and of the one that had the most.
    pub(super) fewest: usize,
    pub(super) most: usize,
    /// The longest that a task went without a turn: from its beginning, between two turns, or to
    /// its end.
    pub(super) longest_gap: Duration,
}

/// The turns of one task.
#[derive(Clone, Copy, Default)]
struct Task {
    turns: usize,
    last_turn: Duration,
    longest_gap: Duration,
    /// When it last had an answer, a turn or not.
    last_answer: Duration,
}

impl Task {
    fn went_on_to(&mut self, round: &Round) {
        self.last_answer = round.answered();
        if round.token.is_some() {
            self.longest_gap = self.gap();
            self.last_turn = self.last_answer;
            self.turns += 1;
        }
    }

    /// The longest until now.
    fn gap(&self) -> Duration {
        let last = self.last_answer.saturating_sub(self.last_turn);
        self.longest_gap.max(last)
    }
}

impl TurnShares {
    /// `rounds` as each process reported them; `tasks` in all.
    pub(super) fn of(rounds: &[Round], tasks: usize) -> Self {
        let mut each: HashMap<(usize, u32), Task> = HashMap::new();
        for round in rounds {
            let task = each.entry((round.process, round.task)).or_default();
            task.went_on_to(round);
        }
        let served = each.values().filter(|task| task.turns > 0).count();
        let fewest = each.values().map(|task| task.turns).min().unwrap_or(0);
        let mut turns = Self {
            served,
            fewest: if each.len() < tasks { 0 } else { fewest },
            most: each.values().map(|task| task.turns).max().unwrap_or(0),
            longest_gap: each.values().map(Task::gap).max().unwrap_or_default(),
            ..Self::default()
        };
        turns.look_at_the_order(rounds);
        turns
    }

    fn look_at_the_order(&mut self, rounds: &[Round]) {
        let mut order: Vec<(u64, usize, Option<u64>)> = rounds
            .iter()
            .filter_map(|round| Some((round.counted?, round.process, round.token)))
            .collect();
        order.sort_unstable();
        // When the first process has had its last turn, the others are fewer.
        let mut last: HashMap<usize, usize> = HashMap::new();
        last.extend(order.iter().enumerate().map(|(at, turn)| (turn.1, at)));
        order.truncate(last.into_values().min().map_or(0, |at| at + 1));
        let changed = order.windows(2).filter(|pair| pair[0].1 != pair[1].1);
        let others = order.len().saturating_sub(1).max(1);
        self.changed_percent = (changed.count() * 100 / others) as u64;
        self.longest_row = longest_row(&order, |turn| turn.1);
        self.most_of_a_grant = longest_row(&order, |turn| (turn.1, turn.2));
    }
}

/// The longest run of turns with the same value of `of`.
fn longest_row<T, K: PartialEq>(turns: &[T], of: impl Fn(&T) -> K) -> usize {
    let rows = turns.chunk_by(|one, next| of(one) == of(next));
    rows.map(<[T]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::round::Outcome;
    use super::*;

    fn round(process: usize, task: u32, at: u64, token: Option<u64>, counted: u64) -> Round {
        Round {
            process,
            task,
            outcome: Outcome::Counted,
            asked: Duration::ZERO,
            wait: Duration::from_secs(at),
            token,
            counted: token.map(|_| counted),
            late_by: None,
        }
    }

    #[test]
    fn turns_are_printed_in_the_order_of_the_counter() {
        let mut rounds: Vec<_> = [0, 0, 1, 0, 0, 1, 0, 0, 0]
            .iter()
            .zip(1..)
            .map(|(process, turn)| round(*process, 0, turn, Some(turn / 2), turn))
            .collect();
        rounds.reverse();
        let turns = TurnShares::of(&rounds, 2);
        assert_eq!((turns.changed_percent, turns.longest_row), (60, 2));
        assert_eq!(turns.most_of_a_grant, 2, "turns 4 and 5 have one token");
    }

    #[test]
    fn a_task_that_waits_in_vain_is_without_a_turn_from_its_beginning_to_its_end() {
        let rounds = [
            round(0, 0, 1, Some(1), 1),
            round(0, 1, 4, None, 0),
            round(0, 0, 3, Some(2), 2),
            round(0, 1, 9, None, 0),
        ];
        let turns = TurnShares::of(&rounds, 2);
        assert_eq!((turns.served, turns.fewest, turns.most), (1, 0, 2));
        assert_eq!(turns.longest_gap, Duration::from_secs(9));
        assert_eq!(TurnShares::of(&rounds[..1], 2).fewest, 0);
        assert_eq!(
            TurnShares::of(&rounds[..1], 1).longest_gap,
            Duration::from_secs(1)
        );
    }
}
