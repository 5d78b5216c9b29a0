//! [`History`]: what callers and the resource saw, written down for checkers that know nothing of
//! this world. `tests/proof/judge` describes the format.
//!
//! An entry is what somebody did, and the span in which it took effect. No judge of the worlds
//! writes here, and nothing is left out because a judge objects.

use std::collections::BTreeMap;
use std::fmt::Write;

use leasehold::run::{CommitProof, HeldKey, TxnId};
use leasehold::{Ended, Key};

use crate::leases::{Given, Mode};
use crate::resource::Deed;
use crate::runs::End;
use crate::state::State;

/// Whether it is known to have happened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Done,
    NotDone,
    /// It may have happened, or may happen later.
    Open,
}

struct Op {
    key: String,
    name: &'static str,
    from: u64,
    to: u64,
    kind: Kind,
    /// What was asked for, and what was answered, as JSON.
    asked: String,
    answer: String,
}

/// A hold, until its end is known.
struct Held {
    number: usize,
    key: String,
    /// The lease as it was seen last.
    words: [u64; 3],
    seen_live: u64,
    /// Unknown where a clock was moved: it says nothing about true time then.
    deadline: Option<u64>,
    over: Option<(u64, u64)>,
    /// When its release was called, and when that closed its gate.
    release: Option<u64>,
    is_closed: bool,
    is_in_doubt: bool,
    /// The end that its caller asked for: how, from when, until when.
    end: Option<(&'static str, u64, Option<u64>)>,
}

#[derive(Default)]
pub(crate) struct History {
    ops: Vec<Op>,
    open: Vec<Held>,
    /// When the commit of each run was sent, under what, and whether the resource compares tokens.
    sent: BTreeMap<usize, (u64, Vec<HeldKey>, bool)>,
    names: BTreeMap<TxnId, usize>,
    /// What the resource did for each key, in its order.
    logs: BTreeMap<Key, Vec<String>>,
}

impl History {
    fn op(&mut self, key: &str, name: &'static str, span: (u64, u64), asked: String) -> &mut Op {
        self.ops.push(Op {
            key: key.to_owned(),
            name,
            from: span.0,
            to: span.1,
            kind: Kind::Done,
            answer: asked.clone(),
            asked,
        });
        self.ops.last_mut().expect("it was just pushed")
    }

    fn held(&mut self, number: usize) -> Option<&mut Held> {
        self.open.iter_mut().find(|held| held.number == number)
    }

    /// Something that a holder does at one instant, which needs its hold.
    fn at(&mut self, name: &'static str, number: usize, at: u64) {
        if let Some(key) = self.held(number).map(|held| held.key.clone()) {
            self.op(&key, name, (at, at), hold(number));
        }
    }

    fn run_of(&mut self, txn: TxnId) -> Option<usize> {
        self.names.get(&txn).copied()
    }
}

fn hold(number: usize) -> String {
    format!("{{\"hold\":{number}}}")
}

impl State {
    /// The time at a node, whose thread may be ahead of the rest of the world.
    fn here(&self, node: usize) -> u64 {
        self.now.max(self.stalled[node])
    }

    /// A caller got its guard; it had asked at `asked_at`.
    pub(crate) fn records_hold(&mut self, number: usize, asked_at: u64) {
        let known = &self.leases.all[number];
        let (node, life) = (known.node, known.life);
        let at = self.here(node);
        if self.history.is_none() || known.mode != Mode::Alone {
            return;
        }
        let held = Held {
            number,
            key: known.key.to_string(),
            words: known.lease.peek(),
            seen_live: asked_at,
            deadline: None,
            over: None,
            release: None,
            is_closed: false,
            is_in_doubt: false,
            end: None,
        };
        let answer = format!(
            "{{\"hold\":{number},\"token\":{},\"owner\":\"{node}.{life}\",\"handoff\":{}}}",
            known.token, !known.refuses_handoffs
        );
        let history = self.history.as_mut().expect("it was just there");
        let op = history.op(&held.key, "acquire", (asked_at, at), "null".to_owned());
        op.answer = answer;
        history.open.push(held);
        self.records_looks();
    }

    /// Looks at each lease as its holder believes it.
    pub(crate) fn records_looks(&mut self) {
        let Some(mut history) = self.history.take() else {
            return;
        };
        let mut open = std::mem::take(&mut history.open);
        for held in &mut open {
            let known = &self.leases.all[held.number];
            let (words, left, at) = (known.lease.peek(), known.left(), self.here(known.node));
            match left {
                Some(_) if held.over.is_some() => {
                    history.op(&held.key, "check", (at, at), hold(held.number));
                }
                Some(left) => {
                    let is_renewed = (0..3).any(|lane| words[lane] > held.words[lane]);
                    if is_renewed {
                        let span = (held.seen_live, at);
                        history.op(&held.key, "renew", span, hold(held.number));
                    }
                    held.seen_live = at;
                    let is_true = !self.has_moved_clocks(known.node);
                    held.deadline = is_true.then(|| at + known.in_truth(left));
                }
                None if held.over.is_none() => {
                    let from = match (words, held.deadline) {
                        ([0, 0, 0], _) | (_, None) => held.seen_live,
                        (_, Some(deadline)) => held.seen_live.max(deadline.min(at)),
                    };
                    held.over = Some((from.min(at), at));
                }
                None => {}
            }
            held.words = words;
        }
        history.open = open;
        self.history = Some(history);
    }

    /// A holder acts on its lease: it checks it, enters it, or commits under it.
    pub(crate) fn records_act(&mut self, name: &'static str, leases: &[usize]) {
        for &number in leases {
            let at = self.here(self.leases.all[number].node);
            if let Some(history) = &mut self.history {
                history.at(name, number, at);
            }
        }
    }

    pub(crate) fn records_doubt(&mut self, leases: &[usize]) {
        self.records_act("doubt", leases);
        let Some(history) = &mut self.history else {
            return;
        };
        for &number in leases {
            if let Some(held) = history.held(number) {
                held.is_in_doubt = true;
            }
        }
    }

    /// A caller calls the release of its hold.
    pub(crate) fn records_release(&mut self, leases: &[usize]) {
        for &number in leases {
            let at = self.here(self.leases.all[number].node);
            if let Some(held) = self.history.as_mut().and_then(|h| h.held(number)) {
                held.release.get_or_insert(at);
                held.end.get_or_insert(("release", at, None));
            }
        }
    }

    /// No run begins or commits from here on.
    pub(crate) fn records_close(&mut self, leases: &[usize], given: Given) {
        for &number in leases {
            let at = self.here(self.leases.all[number].node);
            let Some(history) = &mut self.history else {
                return;
            };
            let Some(held) = history.held(number).filter(|held| !held.is_closed) else {
                continue;
            };
            held.is_closed = true;
            let from = held.release.unwrap_or(at);
            if given == Given::Dropped {
                held.end.get_or_insert(("drop", at, None));
            }
            let key = held.key.clone();
            history.op(&key, "close", (from, at), hold(number));
        }
    }

    /// The release says that the lock is free.
    pub(crate) fn records_released(&mut self, leases: &[usize]) {
        for &number in leases {
            let at = self.here(self.leases.all[number].node);
            let held = self.history.as_mut().and_then(|h| h.held(number));
            if let Some((_, _, until)) = held.and_then(|held| held.end.as_mut()) {
                until.get_or_insert(at);
            }
        }
    }

    /// A process died with what it held.
    pub(crate) fn records_death(&mut self, node: usize, life: u64) {
        self.records_looks();
        let at = self.now;
        let Some(history) = &mut self.history else {
            return;
        };
        for held in &mut history.open {
            let known = &self.leases.all[held.number];
            if (known.node, known.life) == (node, life) {
                held.end.get_or_insert(("death", at, None));
            }
        }
        self.records_ends(|node_of, life_of| (node_of, life_of) == (node, life));
    }

    /// What is known of the ends of these holds is all that will ever be known.
    fn records_ends(&mut self, is_one: impl Fn(usize, u64) -> bool) {
        let Some(mut history) = self.history.take() else {
            return;
        };
        let all = &self.leases.all;
        let (ended, open): (Vec<_>, Vec<_>) = std::mem::take(&mut history.open)
            .into_iter()
            .partition(|held| is_one(all[held.number].node, all[held.number].life));
        history.open = open;
        for held in ended {
            let why = all[held.number].lease.lost_reason();
            let named = |how| format!("{{\"hold\":{},\"how\":\"{how}\"}}", held.number);
            // A call that ended it counts if its lease was not over before.
            let is_called = matches!(why, Some(Ended::Released | Ended::Dropped | Ended::Closed));
            let is_first = |from: u64| {
                held.over.is_none() || is_called && held.deadline.is_none_or(|end| from <= end)
            };
            if let Some((how, from, until)) = held.end.filter(|(_, from, _)| is_first(*from)) {
                let from = held.deadline.map_or(from, |end| from.min(end));
                let span = (from, until.unwrap_or(from));
                let op = history.op(&held.key, "release", span, named(how));
                if until.is_none() {
                    op.kind = Kind::Open;
                }
            } else if let Some(span) = held.over {
                history.op(&held.key, "release", span, named("lapse"));
            }
            // The store keeps it for its TTL, unless it lost the lock before.
            if held.is_in_doubt {
                let end = held.deadline.filter(|_| why != Some(Ended::Gone));
                let from = end.unwrap_or(held.seen_live);
                let op = history.op(&held.key, "release", (from, from), named("lapse"));
                op.kind = Kind::Open;
            }
        }
        self.history = Some(history);
    }

    /// The commit of a run leaves.
    pub(crate) fn records_commit(
        &mut self,
        run: usize,
        txn: TxnId,
        locks: &[HeldKey],
        is_fenced: bool,
    ) {
        // A thread that is ahead reaches the resource at once, unless it sends a message.
        let at = self.now;
        if let Some(history) = &mut self.history {
            history.names.insert(txn, run);
            history.sent.insert(run, (at, locks.to_vec(), is_fenced));
        }
    }

    /// What the caller of a run was given as its outcome.
    pub(crate) fn records_outcome(&mut self, run: usize, end: &End) {
        let node = self.runs.all[run].node;
        let (at, leases) = (self.here(node), self.runs.all[run].leases.clone());
        if let End::Committed(CommitProof::WithinLease | CommitProof::Local) = end {
            self.records_act("check", &leases);
        }
        self.records_write(run, end, at);
    }

    fn records_write(&mut self, run: usize, end: &End, at: u64) {
        let leases = self.runs.all[run].leases.clone();
        let Some(history) = &mut self.history else {
            return;
        };
        let Some((from, locks, is_fenced)) = history.sent.remove(&run) else {
            return;
        };
        let (kind, proof) = match end {
            End::Committed(CommitProof::Fenced) => (Kind::Done, "fence"),
            End::Committed(_) => (Kind::Done, "lease"),
            End::CommittedLate { .. } => (Kind::Done, "none"),
            End::Fenced if locks.len() == 1 => (Kind::NotDone, "fenced"),
            End::Fenced | End::RolledBack | End::Incomplete | End::NotStarted => {
                (Kind::NotDone, "refused")
            }
            End::InDoubt | End::Panicked | End::Dropped => (Kind::Open, "none"),
        };
        for lock in &locks {
            let key = lock.key.to_string();
            let of_key = |number: &&usize| self.leases.all[**number].key == lock.key;
            let number = leases.iter().find(of_key);
            let is_recorded = |number: &&usize| self.leases.all[**number].mode == Mode::Alone;
            let number = number.filter(is_recorded);
            let number = number.map_or("null".to_owned(), usize::to_string);
            let history = self.history.as_mut().expect("it was just there");
            let asked = format!(
                "{{\"id\":\"r{run}\",\"hold\":{number},\"token\":{},\"fenced\":{is_fenced}}}",
                lock.token.number()
            );
            let op = history.op(&key, "write", (from, at), asked);
            op.kind = kind;
            op.answer = format!("{{\"proof\":\"{proof}\"}}");
        }
    }

    /// The resource did something.
    pub(crate) fn records_deed(&mut self, locks: &[HeldKey], deed: &Deed, is_fenced: bool) {
        let now = self.now;
        let Some(history) = &mut self.history else {
            return;
        };
        // Of a commit its run says what happened; a step is known from here alone.
        let (id, is_step) = match deed {
            Deed::Committed(txn) => match history.run_of(*txn) {
                Some(run) => (format!("r{run}"), false),
                None => return,
            },
            Deed::Stepped(step) => (format!("s{step}"), true),
            Deed::Undone(step) => (format!("u{step}"), true),
        };
        for lock in locks {
            let log = history.logs.entry(lock.key.clone()).or_default();
            // A step is repeated by whoever got no answer.
            let id = format!(
                "{id}{}",
                if is_step {
                    format!(".{}", log.len())
                } else {
                    String::new()
                }
            );
            log.push(id.clone());
            if is_step {
                let asked = format!(
                    "{{\"id\":\"{id}\",\"hold\":null,\"token\":{},\"fenced\":{is_fenced}}}",
                    lock.token.number()
                );
                let op = history.op(lock.key.as_str(), "write", (now, now), asked);
                op.answer = "{\"proof\":\"none\"}".to_owned();
            }
        }
    }

    /// A fence is raised: asked for at `from`, and answered, or not.
    pub(crate) fn records_raise(
        &mut self,
        node: usize,
        key: &Key,
        token: u64,
        from: u64,
        done: Option<bool>,
    ) {
        let at = self.here(node);
        if let Some(history) = &mut self.history {
            let asked = format!("{{\"token\":{token}}}");
            let op = history.op(key.as_str(), "raise", (from, at), asked);
            op.kind = match done {
                Some(true) => Kind::Done,
                Some(false) => Kind::NotDone,
                None => Kind::Open,
            };
        }
    }

    pub(crate) fn time_at(&self, node: usize) -> u64 {
        self.here(node)
    }

    pub(crate) fn records_resolution(&mut self, txn: TxnId, locks: &[HeldKey], is_applied: bool) {
        let now = self.now;
        if let Some(history) = &mut self.history
            && let Some(run) = history.run_of(txn)
        {
            for lock in locks {
                let asked = format!("{{\"id\":\"r{run}\",\"applied\":{is_applied}}}");
                history.op(lock.key.as_str(), "resolve", (now, now), asked);
            }
        }
    }

    /// Everything, in the order of time, one JSON object a line.
    pub(crate) fn history(&mut self) -> Option<String> {
        self.records_looks();
        self.records_ends(|_, _| true);
        let now = self.now + 1;
        let unfinished: Vec<_> = self.history.as_ref()?.sent.keys().copied().collect();
        for run in unfinished {
            self.records_write(run, &End::Dropped, now);
        }
        let mut history = self.history.take()?;
        for (key, log) in std::mem::take(&mut history.logs) {
            let ids: Vec<_> = log.iter().map(|id| format!("\"{id}\"")).collect();
            let op = history.op(key.as_str(), "read", (now, now), "null".to_owned());
            op.answer = format!("[{}]", ids.join(","));
        }
        Some(history.text(&self.setup.replay()))
    }
}

impl History {
    fn text(&self, name: &str) -> String {
        let mut lines = Vec::new();
        for (process, op) in self.ops.iter().enumerate() {
            let line = |time: u64, kind: &str, value: &str| {
                format!(
                    "{{\"time\":{time},\"process\":{process},\"type\":\"{kind}\",\"f\":\"{}\",\"key\":\"{}\",\"value\":{value}}}",
                    op.name, op.key
                )
            };
            let (kind, at) = match op.kind {
                Kind::Done => ("ok", op.to),
                Kind::NotDone => ("fail", op.to),
                Kind::Open => ("info", op.from),
            };
            lines.push((op.from, process, 0, line(op.from, "invoke", &op.asked)));
            lines.push((
                at.max(op.from),
                process,
                1,
                line(at.max(op.from), kind, &op.answer),
            ));
        }
        lines.sort_by_key(|(time, process, part, _)| (*time, *part, *process));
        let mut text = format!("{{\"history\":\"{name}\"}}\n");
        for (_, _, _, line) in lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
