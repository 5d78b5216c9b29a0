//! Each rule of the specification: a short history that keeps it, and one that breaks it. Both
//! checkers must say so.

use leasehold_judge::checkers::{Verdict, check, porcupine_says, todc_says};
use leasehold_judge::history::read;
use leasehold_judge::operation::{Operation, operations};
use serde_json::{Value, json};

/// From, until (or `None`: nobody knows), what, what was asked for, what was answered.
type Op = (u64, Option<u64>, &'static str, Value, Value);

fn lines(ops: &[Op]) -> String {
    let mut lines = Vec::new();
    for (process, (from, until, f, asked, answer)) in ops.iter().enumerate() {
        let line = |time: u64, kind: &str, value: &Value| json!({"time": time, "process": process, "type": kind, "f": f, "key": "k", "value": value});
        let failed = answer["failed"] == true;
        lines.push((*from, line(*from, "invoke", asked)));
        lines.push(match until {
            None => (*from, line(*from, "info", asked)),
            Some(until) if failed => (*until, line(*until, "fail", answer)),
            Some(until) => (*until, line(*until, "ok", answer)),
        });
    }
    lines.sort_by_key(|(time, _)| *time);
    let lines: Vec<_> = lines.iter().map(|(_, line)| line.to_string()).collect();
    lines.join("\n")
}

fn operations_of(ops: &[Op]) -> Vec<Operation> {
    let histories = read(&lines(ops)).expect("the format");
    let mut by_key = operations(&histories[0]).expect("operations");
    by_key.remove("k").unwrap_or_default()
}

#[track_caller]
fn is_right(ops: &[Op]) {
    let operations = operations_of(ops);
    assert_eq!(porcupine_says(&operations), Verdict::Right);
    assert!(todc_says(&operations));
}

#[track_caller]
fn is_wrong(ops: &[Op]) {
    let operations = operations_of(ops);
    assert!(matches!(porcupine_says(&operations), Verdict::Wrong(_)));
    assert!(!todc_says(&operations));
    assert!(matches!(check(&operations), Verdict::Wrong(_)));
}

fn acquire(from: u64, until: u64, hold: u64, token: u64, owner: &str) -> Op {
    let answer = json!({"hold": hold, "token": token, "owner": owner, "handoff": true});
    (from, Some(until), "acquire", Value::Null, answer)
}

fn fenced(mut acquire: Op) -> Op {
    acquire.4["handoff"] = json!(false);
    acquire
}

fn act(at: u64, f: &'static str, hold: u64) -> Op {
    (at, Some(at), f, json!({"hold": hold}), Value::Null)
}

fn ends(from: u64, until: Option<u64>, hold: u64, how: &str) -> Op {
    let asked = json!({"hold": hold, "how": how});
    (from, until, "release", asked, Value::Null)
}

fn raise(at: u64, token: u64) -> Op {
    (
        at,
        Some(at + 1),
        "raise",
        json!({"token": token}),
        Value::Null,
    )
}

fn write(from: u64, until: Option<u64>, id: &str, hold: u64, token: u64, proof: &str) -> Op {
    let asked = json!({"id": id, "hold": hold, "token": token, "fenced": proof != "lease"});
    let failed = ["fenced", "refused"].contains(&proof);
    (
        from,
        until,
        "write",
        asked,
        json!({"proof": proof, "failed": failed}),
    )
}

fn read_all(at: u64, ids: &[&str]) -> Op {
    (at, Some(at), "read", Value::Null, json!(ids))
}

#[test]
fn what_a_read_has_returned_stays_in_its_place() {
    let writes = [
        acquire(0, 5, 1, 5, "a"),
        write(10, Some(11), "a", 1, 5, "fence"),
        write(12, None, "b", 1, 5, "lease"),
        write(14, Some(15), "c", 1, 5, "lease"),
    ];
    let with = |reads: &[Op]| [&writes[..], reads].concat();
    is_right(&with(&[read_all(13, &["a"]), read_all(20, &["a", "c"])]));
    is_wrong(&with(&[read_all(13, &["a", "b"]), read_all(20, &["a", "c"])]));
}

#[test]
fn a_lock_is_taken_again_after_a_release_and_after_a_lease() {
    is_right(&[
        acquire(0, 10, 1, 5, "a"),
        act(12, "check", 1),
        ends(20, Some(30), 1, "release"),
        acquire(1, 29, 2, 6, "b"),
        ends(50, Some(60), 2, "lapse"),
        acquire(40, 55, 3, 7, "a"),
        ends(70, None, 3, "death"),
        acquire(75, 80, 4, 9, "c"),
    ]);
}

#[test]
fn two_holds_at_one_time_are_refused() {
    let first = acquire(0, 10, 1, 5, "a");
    let second = acquire(12, 15, 2, 6, "b");
    is_wrong(&[
        first.clone(),
        second.clone(),
        ends(20, Some(30), 1, "release"),
    ]);
    is_wrong(&[
        first.clone(),
        second.clone(),
        ends(20, Some(30), 1, "lapse"),
    ]);
    is_wrong(&[first.clone(), second.clone(), ends(16, None, 1, "death")]);
    // Nobody saw its end.
    is_wrong(&[first.clone(), second.clone()]);
    is_right(&[first, second, ends(14, None, 1, "drop")]);
}

#[test]
fn tokens_grow() {
    let first = [acquire(0, 10, 1, 5, "a"), ends(11, Some(12), 1, "release")];
    for (token, is_larger) in [(4, false), (5, false), (6, true)] {
        let history = [&first[..], &[acquire(20, 30, 2, token, "b")]].concat();
        if is_larger {
            is_right(&history);
        } else {
            is_wrong(&history);
        }
    }
}

#[test]
fn a_token_is_handed_off_within_a_process_after_a_release_alone() {
    let first = acquire(0, 10, 1, 5, "a");
    let released = ends(11, Some(15), 1, "release");
    let next = acquire(1, 13, 2, 5, "a");
    is_right(&[first.clone(), released.clone(), next.clone()]);
    is_wrong(&[first.clone(), released.clone(), acquire(1, 13, 2, 5, "b")]);
    is_wrong(&[first.clone(), released.clone(), fenced(next.clone())]);
    is_wrong(&[fenced(first.clone()), released, next.clone()]);
    is_wrong(&[first.clone(), ends(11, None, 1, "drop"), next.clone()]);
    is_wrong(&[first, ends(11, Some(15), 1, "lapse"), next]);
}

#[test]
fn what_needs_the_hold_is_refused_after_it() {
    for f in ["check", "renew", "enter", "commit"] {
        let begin = acquire(0, 10, 1, 5, "a");
        let end = ends(20, Some(30), 1, "lapse");
        is_right(&[begin.clone(), end.clone(), act(25, f, 1)]);
        is_wrong(&[begin.clone(), end, act(31, f, 1)]);
    }
    // Once it was over, it is over.
    let over = ends(20, Some(30), 1, "lapse");
    is_wrong(&[acquire(0, 10, 1, 5, "a"), over, act(40, "renew", 1)]);
}

#[test]
fn nothing_begins_after_the_close() {
    let history = |f| {
        let end = ends(20, Some(30), 1, "release");
        [
            acquire(0, 10, 1, 5, "a"),
            act(20, "close", 1),
            act(22, f, 1),
            end,
        ]
    };
    is_right(&history("check"));
    is_wrong(&history("enter"));
    is_wrong(&history("commit"));
}

#[test]
fn a_hold_in_doubt_ends_by_its_lease_alone() {
    let history = |next: u64| {
        [
            acquire(0, 10, 1, 5, "a"),
            act(12, "doubt", 1),
            ends(20, Some(25), 1, "release"),
            ends(90, None, 1, "lapse"),
            acquire(30, next, 2, 6, "b"),
        ]
    };
    is_right(&history(95));
    is_wrong(&history(80));
}

#[test]
fn a_stale_write_is_refused_by_the_fence() {
    let stale = |proof| {
        let ids: &[&str] = if proof == "fence" { &["w"] } else { &[] };
        [
            acquire(0, 10, 1, 5, "a"),
            raise(8, 5),
            ends(20, Some(21), 1, "lapse"),
            acquire(22, 30, 2, 6, "b"),
            raise(25, 6),
            write(40, Some(50), "w", 1, 5, proof),
            read_all(99, ids),
        ]
    };
    is_wrong(&stale("fence"));
    is_right(&stale("fenced"));
    is_right(&stale("refused"));
    // Nobody has seen a larger token.
    let first = write(40, Some(50), "w", 1, 5, "fenced");
    is_wrong(&[
        acquire(0, 10, 1, 5, "a"),
        raise(8, 5),
        first,
        read_all(99, &[]),
    ]);
}

#[test]
fn a_write_within_the_lease_is_applied_while_it_is_held() {
    let history = |from, until| {
        [
            acquire(0, 10, 1, 5, "a"),
            write(from, Some(until), "w", 1, 5, "lease"),
            ends(20, Some(21), 1, "lapse"),
            read_all(99, &["w"]),
        ]
    };
    is_right(&history(12, 15));
    is_right(&history(19, 30));
    is_wrong(&history(22, 30));
}

#[test]
fn outcomes_are_compared_with_what_was_applied() {
    let history = |until, proof, ids: &[&str]| {
        [
            acquire(0, 10, 1, 5, "a"),
            raise(8, 5),
            write(12, until, "w", 1, 5, proof),
            read_all(99, ids),
        ]
    };
    for until in [Some(15), None] {
        is_right(&history(until, "fence", &["w"]));
    }
    is_right(&history(None, "fence", &[]));
    is_wrong(&history(Some(15), "fence", &[]));
    is_wrong(&history(Some(15), "refused", &["w"]));
    is_wrong(&history(Some(15), "fence", &["w", "w"]));
    is_wrong(&history(Some(15), "fence", &["w", "of nobody"]));
}

#[test]
fn writes_keep_their_order() {
    let history = |ids: &[&str]| {
        [
            acquire(0, 10, 1, 5, "a"),
            write(12, Some(15), "v", 1, 5, "fence"),
            write(16, Some(18), "w", 1, 5, "fence"),
            read_all(99, ids),
        ]
    };
    is_right(&history(&["v", "w"]));
    is_wrong(&history(&["w", "v"]));
}

#[test]
fn a_resolution_is_final() {
    let history = |applied: bool, ids: &[&str]| {
        let asked = json!({"id": "w", "applied": applied});
        [
            acquire(0, 10, 1, 5, "a"),
            write(12, None, "w", 1, 5, "fence"),
            (30, Some(31), "resolve", asked, Value::Null),
            read_all(99, ids),
        ]
    };
    is_right(&history(true, &["w"]));
    is_right(&history(false, &[]));
    is_wrong(&history(true, &[]));
    is_wrong(&history(false, &["w"]));
}

#[test]
fn a_get_returns_the_last_write() {
    let history = |number: u64| {
        let mut wrote = write(12, Some(15), "w", 1, 5, "fence");
        wrote.3["number"] = json!(7);
        let get = (20, Some(21), "get", Value::Null, json!({"number": number}));
        [acquire(0, 10, 1, 5, "a"), wrote, get, read_all(99, &["w"])]
    };
    is_right(&history(7));
    is_wrong(&history(6));
}

#[test]
fn a_history_that_is_not_of_the_format_is_an_error() {
    let line = |kind: &str| {
        format!(
            r#"{{"time":1,"process":0,"type":"{kind}","f":"renew","key":"k","value":{{"hold":1}}}}"#
        )
    };
    assert!(read("{}").is_err());
    assert!(read(&line("done")).is_err());
    for lines in [line("ok"), line("invoke") + "\n" + &line("invoke")] {
        assert!(operations(&read(&lines).unwrap()[0]).is_err());
    }
    let unknown = line("invoke") + "\n" + &line("ok");
    let unknown = unknown.replace("renew", "juggle");
    assert!(operations(&read(&unknown).unwrap()[0]).is_err());
}
