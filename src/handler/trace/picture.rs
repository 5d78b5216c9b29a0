//! [`Picture`]: from records to lines: which slice begins, ends, or gets a mark.
//!
//! The name of a slice is known at its end: how a run ended, why a hold did. So a slice has two layers. The outer one has the
//! name of its track and is written at once, so that a process that is killed shows what it was doing. The inner one has the
//! name of the end, and with it its colour, and is written at the end.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::line::{Line, Track, Value, track_of};
use super::record::{CallOutcome, Record, What};
use crate::lease::Lease;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::token::FencingToken;

/// The most runs in progress whose begin is remembered. The end of any other has no length.
const MOST_RUNS: usize = 65_536;

/// How long a hold whose lease is over waits for its last event, which may have been dropped.
const LAST_EVENT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Picture {
    process: u32,
    is_named: bool,
    /// Of one key and token there may be two, while a hold is handed off.
    holds: HashMap<(Key, FencingToken), VecDeque<Hold>>,
    /// When each run in progress began.
    runs: HashMap<u64, u64>,
    slices: u64,
    out: Vec<u8>,
}

struct Hold {
    track: Track,
    began: u64,
    lease: Lease,
    is_at_risk: bool,
    /// The deadline that was written last; `None` once the lease was over.
    deadline: Option<u64>,
    over_since: Option<u64>,
}

impl Picture {
    pub(super) fn new() -> Self {
        Self {
            process: std::process::id(),
            ..Self::default()
        }
    }

    /// The lines since the last call.
    pub(super) fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(super) fn draw(&mut self, record: Record) {
        let at = record.at;
        match record.what {
            What::Waiting { key, callers } => {
                let name = track_of(&key, "callers");
                let callers = Value::Count(callers as u64);
                self.line('C', at, &name, None, &[("waiting", callers)]);
            }
            What::Called {
                key,
                label,
                outcome,
                wait,
            } => self.called(at, key, &label, outcome, wait),
            What::Renewed {
                answers: [extended, gone, unknown],
                round_trip,
                timer_lag,
            } => {
                let args = [
                    ("extended", Value::Count(extended as u64)),
                    ("gone", Value::Count(gone as u64)),
                    ("unknown", Value::Count(unknown as u64)),
                    ("timer lag (ms)", Value::Millis(timer_lag)),
                ];
                let track = self.track("renewal");
                let began = before(at, round_trip);
                self.line('b', began, "renewals", Some(track), &args);
                self.line('e', at, "renewals", Some(track), &[]);
            }
            What::Ran {
                key,
                token,
                locks,
                run,
                event,
            } => self.ran(at, &key, token, locks, run, event),
            What::Sent { key, intent } => {
                self.mark(at, &format!("{key}: step: {intent}"));
            }
            What::Owed { key, intent, state } => {
                self.mark(at, &format!("{key}: debt: {intent}: {state}"));
            }
            What::Lost { key, token, reason } => {
                let hold = self.holds.get(&(key, token)).and_then(VecDeque::back);
                if let Some(track) = hold.map(|hold| hold.track) {
                    self.line('n', at, &format!("lost: {reason}"), Some(track), &[]);
                }
            }
            What::Ended {
                key,
                token,
                reason,
                released,
                took,
            } => {
                let place = (key, token);
                let hold = self.holds.get_mut(&place).and_then(VecDeque::pop_front);
                if self.holds.get(&place).is_some_and(VecDeque::is_empty) {
                    self.holds.remove(&place);
                }
                if let Some(hold) = hold {
                    let ended = before(at, took);
                    self.inner(&hold, &reason.to_string(), ended);
                    self.released(&hold, &place.0, [ended, at], released);
                }
            }
        }
    }

    fn released(&mut self, hold: &Hold, key: &Key, [ended, at]: [u64; 2], answer: &str) {
        let args = [("answer", Value::Text(answer))];
        self.left(ended, key, Duration::ZERO);
        self.line('b', ended, "release", Some(hold.track), &[]);
        self.line('e', at, "release", Some(hold.track), &args);
        self.line('e', at, key.as_str(), Some(hold.track), &[]);
    }

    fn called(&mut self, at: u64, key: Key, label: &Label, outcome: CallOutcome, wait: Duration) {
        self.name_process(at, label);
        let (word, why) = match &outcome {
            CallOutcome::Held(_) => ("held", None),
            CallOutcome::Not(word, why) => (*word, why.as_deref()),
        };
        let why = why.map(|why| ("why", Value::Text(why)));
        let (name, track) = (track_of(&key, "calls"), self.track("call"));
        let began = before(at, wait);
        let holder = ("holder", Value::Text(label.as_str()));
        self.line('b', began, &name, Some(track), &[holder]);
        self.line('b', began, word, Some(track), why.as_slice());
        self.line('e', at, word, Some(track), &[]);
        self.line('e', at, &name, Some(track), &[]);
        if let CallOutcome::Held(lease) = outcome {
            let (track, token) = (self.track("hold"), lease.token());
            let args = [
                ("token", Value::Text(&token.to_string())),
                ("holder", Value::Text(label.as_str())),
            ];
            self.line('b', at, key.as_str(), Some(track), &args);
            let deadline = lease.deadline();
            self.left(at, &key, left_of(deadline, at));
            let hold = Hold {
                track,
                began: at,
                is_at_risk: false,
                deadline,
                over_since: None,
                lease,
            };
            let same = self.holds.entry((key, token)).or_default();
            same.push_back(hold);
        }
    }

    fn ran(
        &mut self,
        at: u64,
        key: &Key,
        token: FencingToken,
        locks: Option<String>,
        run: u64,
        event: RunEvent,
    ) {
        let name = track_of(key, "runs");
        let track = Some(Track {
            category: "run",
            id: run * 2 + 1,
        });
        let token = token.to_string();
        let begin = [
            ("token", Value::Text(&token)),
            ("locks", Value::Text(locks.as_deref().unwrap_or("one"))),
        ];
        let (word, args) = match event {
            RunEvent::Entered => {
                if self.runs.len() < MOST_RUNS {
                    self.runs.insert(run, at);
                }
                return self.line('b', at, &name, track, &begin);
            }
            RunEvent::Checked { is_live } => {
                return self.line('n', at, "check", track, &[("live", Value::Flag(is_live))]);
            }
            RunEvent::Undone { done, not_done } => {
                let args = [
                    ("done", Value::Count(done as u64)),
                    ("not done", Value::Count(not_done as u64)),
                ];
                return self.line('n', at, "undone", track, &args);
            }
            RunEvent::Committed { slack } => {
                ("committed", Some(("slack (ms)", Value::Millis(slack))))
            }
            RunEvent::CommittedLate { late_by } => (
                "committed late",
                Some(("late by (ms)", Value::Millis(late_by))),
            ),
            RunEvent::Incomplete { debts } => {
                ("incomplete", Some(("debts", Value::Count(debts as u64))))
            }
            RunEvent::NotStarted => ("not started", None),
            RunEvent::RolledBack => ("rolled back", None),
            RunEvent::Fenced => ("fenced", None),
            RunEvent::InDoubt => ("in doubt", None),
            RunEvent::Panicked => ("panicked", None),
            RunEvent::Dropped => ("dropped", None),
        };
        let began = self.runs.remove(&run);
        if began.is_none() {
            self.line('b', at, &name, track, &begin);
        }
        self.line('b', began.unwrap_or(at), word, track, args.as_slice());
        self.line('e', at, word, track, &[]);
        self.line('e', at, &name, track, &[]);
    }

    /// Looks at the leases of all holds: which deadlines have moved, which holds are at risk, which are over.
    pub(super) fn look(&mut self, now: u64) {
        let mut holds = std::mem::take(&mut self.holds);
        for ((key, _), same) in &mut holds {
            for hold in &mut *same {
                let deadline = hold.lease.deadline();
                if hold.deadline != deadline {
                    hold.deadline = deadline;
                    self.left(now, key, left_of(deadline, now));
                }
                let is_at_risk = deadline.is_some() && hold.lease.is_at_risk();
                if hold.is_at_risk != is_at_risk {
                    hold.is_at_risk = is_at_risk;
                    let name = if is_at_risk {
                        "at risk"
                    } else {
                        "no longer at risk"
                    };
                    self.line('n', now, name, Some(hold.track), &[]);
                }
                if deadline.is_none() {
                    hold.over_since.get_or_insert(now);
                }
            }
            let limit = LAST_EVENT_LIMIT.as_nanos() as u64;
            same.retain(|hold| {
                let is_kept = hold.over_since.is_none_or(|at| now - at <= limit);
                if !is_kept {
                    self.inner(hold, "its end was not seen", now);
                    self.line('e', now, key.as_str(), Some(hold.track), &[]);
                }
                is_kept
            });
        }
        holds.retain(|_, same| !same.is_empty());
        self.holds = holds;
    }

    /// A mark of the whole process.
    pub(super) fn mark(&mut self, at: u64, name: &str) {
        self.line('i', at, name, None, &[]);
    }

    fn name_process(&mut self, at: u64, label: &Label) {
        if !self.is_named {
            self.is_named = true;
            let args = [("name", Value::Text(label.as_str()))];
            self.line('M', at, "process_name", None, &args);
        }
    }

    /// What is left of a lease.
    fn left(&mut self, at: u64, key: &Key, left: Duration) {
        let name = track_of(key, "left");
        self.line('C', at, &name, None, &[("ms", Value::Millis(left))]);
    }

    /// The layer of a hold that shows how it ended.
    fn inner(&mut self, hold: &Hold, name: &str, ended: u64) {
        self.line('b', hold.began, name, Some(hold.track), &[]);
        self.line('e', ended, name, Some(hold.track), &[]);
    }

    fn track(&mut self, category: &'static str) -> Track {
        self.slices += 1;
        // The runs have the odd numbers.
        Track {
            category,
            id: self.slices * 2,
        }
    }

    fn line(
        &mut self,
        phase: char,
        at: u64,
        name: &str,
        track: Option<Track>,
        args: &[(&str, Value<'_>)],
    ) {
        let line = Line {
            phase,
            at,
            name,
            track,
        };
        line.write(self.process, args, &mut self.out);
    }
}

fn left_of(deadline: Option<u64>, now: u64) -> Duration {
    Duration::from_nanos(deadline.map_or(0, |deadline| deadline.saturating_sub(now)))
}

fn before(at: u64, span: Duration) -> u64 {
    at.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
