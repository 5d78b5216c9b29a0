//! [`judge`]: what may not have happened, from the events of all processes and the log of the
//! counter.

use std::collections::HashMap;

use crate::event::{Event, Outcome, What};

/// A write of the counter, in the order in which they were applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub txn: String,
    pub token: u64,
    pub number: u64,
}

impl Entry {
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            txn: words.next()?.to_owned(),
            token: words.next()?.parse().ok()?,
            number: words.next()?.parse().ok()?,
        })
    }
}

/// Violations by the name of the check, and figures.
#[derive(Default, Debug)]
pub struct Verdict {
    /// N1: two processes believed at one time that they hold the lock.
    pub n1: Vec<String>,
    /// N2: a write behind the fence with a smaller token than one before it.
    pub n2: Vec<String>,
    /// N3: an outcome that the log contradicts.
    pub n3: Vec<String>,
    /// N4: the counter skipped or repeated a number, or its order contradicts the time.
    pub n4: Vec<String>,
    pub holds: usize,
    pub writes: usize,
    /// Writes without a fence that overwrote another one, after their lease.
    pub overlaps: usize,
    pub outcomes: HashMap<Outcome, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    p: u32,
    from: u64,
    deadline: u64,
    until: u64,
}

/// `kills` are processes and when they were about to be killed.
pub fn judge(events: &[Event], kills: &[(u32, u64)], log: &[Entry], is_fenced: bool) -> Verdict {
    let mut verdict = Verdict {
        writes: log.len(),
        ..Verdict::default()
    };
    exclusion(events, kills, &mut verdict);
    if is_fenced {
        for pair in log.windows(2).filter(|pair| pair[1].token < pair[0].token) {
            verdict
                .n2
                .push(format!("{:?} after {:?}", pair[1], pair[0]));
        }
    }
    outcomes(events, log, is_fenced, &mut verdict);
    verdict
}

/// N1. A belief begins with the report of the grant, and ends with its release, its loss, its last
/// known deadline, or its process: the true one is longer on both sides, so that each overlap is
/// real.
fn exclusion(events: &[Event], kills: &[(u32, u64)], verdict: &mut Verdict) {
    let mut holds: HashMap<u64, Hold> = HashMap::new();
    for event in events {
        match event.what {
            What::Held { hold, deadline, .. } => {
                let killed = kills.iter().find(|(p, _)| *p == event.p);
                holds.insert(
                    hold,
                    Hold {
                        p: event.p,
                        from: event.t,
                        deadline,
                        until: killed.map_or(u64::MAX, |(_, at)| *at),
                    },
                );
            }
            What::Deadline { hold, deadline } => {
                if let Some(held) = holds.get_mut(&hold) {
                    held.deadline = held.deadline.max(deadline);
                }
            }
            What::Over { hold, alive: at } => {
                if let Some(held) = holds.get_mut(&hold) {
                    held.until = held.until.min(at);
                }
            }
            What::Release { hold } => {
                if let Some(held) = holds.get_mut(&hold) {
                    held.until = held.until.min(event.t);
                }
            }
            _ => {}
        }
    }
    verdict.holds = holds.len();
    let mut holds: Vec<Hold> = holds.into_values().collect();
    holds.sort_unstable_by_key(|held| held.from);
    let mut last: Option<(u64, Hold)> = None;
    for held in holds {
        let end = held.deadline.min(held.until);
        if let Some((before, other)) = last
            && held.from < before
            && held.from < end
        {
            let ms = (before.min(end) - held.from) / 1_000_000;
            verdict.n1.push(format!(
                "processes {} and {} at {}, for {ms} ms",
                other.p, held.p, held.from
            ));
        }
        if last.is_none_or(|(before, _)| end > before) {
            last = Some((end, held));
        }
    }
}

/// N3 and N4.
fn outcomes(events: &[Event], log: &[Entry], is_fenced: bool, verdict: &mut Verdict) {
    /// When its commit was sent, and when and how it was answered.
    #[derive(Clone, Copy, Default)]
    struct Run {
        sent: u64,
        answered: Option<u64>,
        outcome: Option<Outcome>,
    }
    let mut runs: HashMap<&str, Run> = HashMap::new();
    for event in events {
        match &event.what {
            What::Commit { txn, .. } => runs.entry(txn).or_default().sent = event.t,
            What::Outcome { txn, outcome, .. } => {
                let run = runs.entry(txn).or_default();
                run.answered = Some(event.t);
                run.outcome = Some(*outcome);
                *verdict.outcomes.entry(*outcome).or_default() += 1;
            }
            _ => {}
        }
    }
    let mut applied: HashMap<&str, usize> = HashMap::new();
    for entry in log {
        *applied.entry(&entry.txn).or_default() += 1;
        if !runs.contains_key(entry.txn.as_str()) {
            verdict.n3.push(format!("{entry:?}: nobody sent it"));
        }
    }
    for (txn, run) in &runs {
        let times = applied.get(txn).copied().unwrap_or(0);
        let is_true = match run.outcome {
            Some(Outcome::Committed) => times == 1,
            Some(Outcome::CommittedLate) => times == 1 && !is_fenced,
            Some(Outcome::NotApplied | Outcome::Fenced) => times == 0,
            Some(Outcome::Unknown) | None => times <= 1,
        };
        if !is_true {
            let outcome = run.outcome;
            verdict
                .n3
                .push(format!("{txn}: {outcome:?}, applied {times} times"));
        }
    }
    let (mut last, mut is_intruder, mut latest_sent) = (0, false, 0);
    for entry in log {
        let run = runs.get(entry.txn.as_str()).copied().unwrap_or_default();
        // It overwrites a write that it has not seen. The next one may have been read before it,
        // and skip it.
        let overwrites = entry.number <= last;
        verdict.overlaps += usize::from(overwrites);
        // Without a fence it may happen, and then the run does not claim that its lease covered it.
        let may_overwrite = !is_fenced && run.outcome != Some(Outcome::Committed);
        let may_skip = !is_fenced && is_intruder;
        let is_next = entry.number == last + 1;
        if !(is_next || overwrites && may_overwrite || !overwrites && may_skip) {
            let outcome = run.outcome;
            verdict
                .n4
                .push(format!("{entry:?} after {last}: {outcome:?}"));
        }
        (last, is_intruder) = (entry.number, overwrites);
        // What is in doubt may be applied later.
        let is_answer = matches!(
            run.outcome,
            Some(Outcome::Committed | Outcome::CommittedLate)
        );
        if is_answer && run.answered.is_some_and(|answered| answered < latest_sent) {
            verdict.n4.push(format!(
                "{entry:?}: it was answered before one was sent that it follows"
            ));
        }
        latest_sent = latest_sent.max(run.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t: u64, p: u32, what: What) -> Event {
        Event {
            t,
            p,
            task: 0,
            what,
        }
    }

    fn held(t: u64, p: u32, deadline: u64) -> Event {
        let hold = u64::from(p);
        event(
            t,
            p,
            What::Held {
                hold,
                token: 1,
                deadline,
            },
        )
    }

    fn ran(t: u64, txn: &str, outcome: Outcome) -> [Event; 2] {
        let (txn, why) = (txn.to_owned(), String::new());
        let commit = What::Commit {
            hold: 0,
            txn: txn.clone(),
        };
        let answer = What::Outcome { txn, outcome, why };
        [event(t, 0, commit), event(t + 5, 0, answer)]
    }

    fn log(entries: &[(&str, u64, u64)]) -> Vec<Entry> {
        let entry = |(txn, token, number): &(&str, u64, u64)| Entry {
            txn: (*txn).to_owned(),
            token: *token,
            number: *number,
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn two_beliefs_at_one_time_are_found_unless_one_had_ended() {
        let both = [held(10, 1, 100), held(50, 2, 150)];
        assert_eq!(judge(&both, &[], &[], true).n1.len(), 1);
        // A renewal that was seen lifts the deadline.
        let renewed = [
            held(10, 1, 40),
            event(
                30,
                1,
                What::Deadline {
                    hold: 1,
                    deadline: 60,
                },
            ),
            held(50, 2, 150),
        ];
        assert_eq!(judge(&renewed, &[], &[], true).n1.len(), 1);
        assert!(judge(&renewed, &[(1, 45)], &[], true).n1.is_empty());
        let ended = |what| [both[0].clone(), event(45, 1, what), both[1].clone()];
        let released = ended(What::Release { hold: 1 });
        assert!(judge(&released, &[], &[], true).n1.is_empty());
        let over = ended(What::Over { hold: 1, alive: 44 });
        assert!(judge(&over, &[], &[], true).n1.is_empty());
        let lapsed = [held(10, 1, 50), held(50, 2, 150)];
        assert!(judge(&lapsed, &[], &[], true).n1.is_empty());
    }

    #[test]
    fn a_long_belief_is_compared_with_more_than_the_next_one() {
        let three = [held(10, 1, 900), held(20, 2, 30), held(40, 3, 50)];
        assert_eq!(judge(&three, &[], &[], true).n1.len(), 2);
    }

    #[test]
    fn a_smaller_token_after_a_larger_one_is_found_behind_a_fence_only() {
        let log = log(&[("a", 2, 1), ("b", 1, 2)]);
        let runs = [
            ran(1, "a", Outcome::Committed),
            ran(9, "b", Outcome::Committed),
        ]
        .concat();
        assert_eq!(judge(&runs, &[], &log, true).n2.len(), 1);
        assert!(judge(&runs, &[], &log, false).n2.is_empty());
    }

    #[test]
    fn an_outcome_is_compared_with_the_log() {
        let violations = |outcome, times: u64, is_fenced| {
            let entries: Vec<_> = (1..=times).map(|number| ("a", 1, number)).collect();
            judge(&ran(1, "a", outcome), &[], &log(&entries), is_fenced)
                .n3
                .len()
        };
        for (outcome, allowed) in [
            (Outcome::Committed, 1..=1),
            (Outcome::CommittedLate, 1..=1),
            (Outcome::NotApplied, 0..=0),
            (Outcome::Fenced, 0..=0),
            (Outcome::Unknown, 0..=1),
        ] {
            for times in 0..3 {
                let expected = usize::from(!allowed.contains(&times));
                assert_eq!(
                    violations(outcome, times, false),
                    expected,
                    "{outcome:?} {times}"
                );
            }
        }
        assert_eq!(violations(Outcome::CommittedLate, 1, true), 1);
        let nobody = judge(&[], &[], &log(&[("a", 1, 1)]), true);
        assert_eq!(nobody.n3.len(), 1);
    }

    #[test]
    fn a_lost_update_is_an_overlap_and_a_fault_where_the_run_claims_its_lease() {
        let entries = log(&[("a", 1, 1), ("b", 2, 2), ("c", 1, 2)]);
        let runs = |outcome| {
            let mut runs = ran(1, "a", Outcome::Committed).to_vec();
            runs.extend(ran(10, "b", Outcome::Committed));
            runs.extend(ran(20, "c", outcome));
            runs
        };
        let late = judge(&runs(Outcome::CommittedLate), &[], &entries, false);
        assert_eq!((late.overlaps, late.n4.len()), (1, 0));
        // The next one had read before.
        let mut skips = runs(Outcome::CommittedLate);
        skips.extend(ran(30, "d", Outcome::Committed));
        let more = log(&[("a", 1, 1), ("b", 2, 2), ("c", 1, 2), ("d", 2, 4)]);
        let skipped = judge(&skips, &[], &more, false);
        assert_eq!((skipped.overlaps, skipped.n4.len()), (1, 0));
        assert_eq!(judge(&skips, &[], &more, true).n4.len(), 2);
        assert_eq!(
            judge(&runs(Outcome::Committed), &[], &entries, false)
                .n4
                .len(),
            1
        );
        assert_eq!(
            judge(&runs(Outcome::Unknown), &[], &entries, true).n4.len(),
            1
        );
    }

    #[test]
    fn an_answer_that_came_before_another_send_was_applied_before_it() {
        let runs = [
            ran(1, "a", Outcome::Committed),
            ran(20, "b", Outcome::Committed),
        ]
        .concat();
        let in_order = log(&[("a", 1, 1), ("b", 1, 2)]);
        assert!(judge(&runs, &[], &in_order, true).n4.is_empty());
        let swapped = log(&[("b", 1, 1), ("a", 1, 2)]);
        assert_eq!(judge(&runs, &[], &swapped, true).n4.len(), 1);
    }
}
