//! [`history`]: what the processes and the counter saw, for the judges of `tests/proof/judge`,
//! which describes the format.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::event::{Event, Outcome, What};
use crate::judge::Entry;
use crate::plan::KEY;

/// Whether an operation is known to have happened.
#[derive(Clone, Copy)]
enum Kind {
    Done,
    NotDone,
    /// It may have happened, or may happen later.
    Open,
}

struct Op {
    f: &'static str,
    from: u64,
    to: u64,
    kind: Kind,
    asked: Value,
    answer: Value,
}

/// What is known of a hold.
struct Held {
    hold: u64,
    p: u32,
    deadline: u64,
    /// When it was last seen live, and when it was seen to be over.
    over: Option<(u64, u64)>,
    release: Option<u64>,
    /// When a release said that the lock is free.
    released: Option<u64>,
}

#[derive(Default)]
struct Ops {
    all: Vec<Op>,
    asked: HashMap<(u32, u32), u64>,
    holds: Vec<Held>,
    tokens: HashMap<u64, u64>,
    /// The commits that were sent: when, and under which hold.
    sent: HashMap<String, (u64, u64)>,
}

/// One history, as lines. `kills` are processes and when they were about to be killed.
pub fn history(
    name: &str,
    events: &[Event],
    kills: &[(u32, u64)],
    log: &[Entry],
    is_fenced: bool,
) -> String {
    let mut ops = Ops::default();
    let numbers: HashMap<_, _> = (log.iter())
        .map(|entry| (entry.txn.as_str(), entry.number))
        .collect();
    // Processes write at the same time, and a line may come a little later than the next one's.
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event.t);
    for event in &events {
        ops.happened(event, &numbers, is_fenced);
    }
    ops.ends(kills);
    let sent = std::mem::take(&mut ops.sent);
    for (txn, (from, hold)) in sent {
        let number = numbers.get(txn.as_str()).copied();
        let asked = ops.write(&txn, hold, number, is_fenced);
        ops.add("write", (from, from), Kind::Open, asked, Value::Null);
    }
    let end = events.last().map_or(0, |event| event.t) + 1;
    let ids: Vec<_> = log.iter().map(|entry| entry.txn.as_str()).collect();
    ops.add("read", (end, end), Kind::Done, Value::Null, json!(ids));
    ops.text(name)
}

impl Ops {
    fn add(
        &mut self,
        f: &'static str,
        (from, to): (u64, u64),
        kind: Kind,
        asked: Value,
        answer: Value,
    ) {
        self.all.push(Op {
            f,
            from,
            to,
            kind,
            asked,
            answer,
        });
    }

    fn held(&mut self, hold: u64) -> Option<&mut Held> {
        self.holds.iter_mut().rev().find(|held| held.hold == hold)
    }

    fn write(&self, txn: &str, hold: u64, number: Option<u64>, is_fenced: bool) -> Value {
        let token = self.tokens.get(&hold).copied().unwrap_or_default();
        json!({"id": txn, "hold": hold, "token": token, "fenced": is_fenced, "number": number})
    }

    fn happened(&mut self, event: &Event, numbers: &HashMap<&str, u64>, is_fenced: bool) {
        let (t, p, caller) = (event.t, event.p, (event.p, event.task));
        match &event.what {
            What::Ask => drop(self.asked.insert(caller, t)),
            What::Held {
                hold,
                token,
                deadline,
            } => {
                let span = (self.asked.get(&caller).copied().unwrap_or_default(), t);
                let owner = p.to_string();
                // A lock with a fence refuses handoffs.
                let answer =
                    json!({"hold": hold, "token": token, "owner": owner, "handoff": !is_fenced});
                self.add("acquire", span, Kind::Done, Value::Null, answer);
                if is_fenced {
                    let asked = json!({"token": token});
                    self.add("raise", span, Kind::Done, asked, Value::Null);
                }
                self.tokens.insert(*hold, *token);
                self.holds.push(Held {
                    hold: *hold,
                    p,
                    deadline: *deadline,
                    over: None,
                    release: None,
                    released: None,
                });
            }
            What::Deadline { hold, deadline } => {
                if let Some(held) = self.held(*hold) {
                    held.deadline = held.deadline.max(*deadline);
                }
            }
            What::Over { hold, alive } => {
                if let Some(held) = self.held(*hold) {
                    held.over = Some((*alive, t));
                }
            }
            What::Read { from, number } => {
                let answer = json!({"number": number});
                self.add("get", (*from, t), Kind::Done, Value::Null, answer);
            }
            What::Commit { hold, txn } => drop(self.sent.insert(txn.clone(), (t, *hold))),
            What::Outcome { txn, outcome, why } => {
                let Some((from, hold)) = self.sent.remove(txn) else {
                    return;
                };
                let (kind, proof) = match outcome {
                    Outcome::Committed if why == "Fenced" => (Kind::Done, "fence"),
                    Outcome::Committed if why == "WithinLease" => (Kind::Done, "lease"),
                    Outcome::Committed | Outcome::CommittedLate => (Kind::Done, "none"),
                    // Which raise came before is not known: who raised may never have held.
                    Outcome::Fenced | Outcome::NotApplied => (Kind::NotDone, "refused"),
                    Outcome::Unknown => (Kind::Open, "none"),
                };
                let number = numbers.get(txn.as_str()).copied();
                let asked = self.write(txn, hold, number, is_fenced);
                self.add("write", (from, t), kind, asked, json!({"proof": proof}));
            }
            What::Release { hold } => {
                if let Some(held) = self.held(*hold) {
                    held.release = Some(t);
                }
            }
            What::Released { hold } => {
                if let Some(held) = self.held(*hold) {
                    held.released = Some(t);
                }
            }
            _ => {}
        }
    }

    /// How each hold ended. Where several things could have ended it, the first one did.
    fn ends(&mut self, kills: &[(u32, u64)]) {
        for held in std::mem::take(&mut self.holds) {
            let named = |how: &str| json!({"hold": held.hold, "how": how});
            let killed = kills.iter().find(|(p, _)| *p == held.p).map(|(_, at)| *at);
            let over = held.over.map_or(u64::MAX, |(_, seen)| seen);
            let release = held.release.filter(|at| *at <= over.min(held.deadline));
            if let Some(from) = release {
                let kind = held.released.map_or(Kind::Open, |_| Kind::Done);
                let span = (from, held.released.unwrap_or(from));
                self.add("release", span, kind, named("release"), Value::Null);
                continue;
            }
            // A deadline may have moved again after it was seen for the last time.
            let alive = held.over.map_or(held.deadline, |(alive, _)| alive);
            let from = alive.min(held.deadline);
            if let Some(at) = killed.filter(|at| *at < from) {
                self.add("release", (at, at), Kind::Open, named("death"), Value::Null);
                continue;
            }
            let kind = held.over.map_or(Kind::Open, |_| Kind::Done);
            let to = held.over.map_or(from, |(_, seen)| seen.max(from));
            self.add("release", (from, to), kind, named("lapse"), Value::Null);
        }
    }

    fn text(&self, name: &str) -> String {
        let mut lines = Vec::new();
        for (process, op) in self.all.iter().enumerate() {
            let line = |time: u64, kind: &str, value: &Value| json!({"time": time, "process": process, "type": kind, "f": op.f, "key": KEY, "value": value});
            let (kind, at) = match op.kind {
                Kind::Done => ("ok", op.to),
                Kind::NotDone => ("fail", op.to),
                Kind::Open => ("info", op.from),
            };
            let answer = if op.answer.is_null() {
                &op.asked
            } else {
                &op.answer
            };
            lines.push((op.from, 0, process, line(op.from, "invoke", &op.asked)));
            lines.push((at, 1, process, line(at, kind, answer)));
        }
        lines.sort_by_key(|(time, part, process, _)| (*time, *part, *process));
        let mut text = format!("{}\n", json!({"history": name}));
        for (_, _, _, line) in lines {
            text += &format!("{line}\n");
        }
        text
    }
}
