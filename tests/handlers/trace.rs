//! The trace of a run of a program: its slices, its marks, and what it costs when nobody can write it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::support::{ms, secs};
use leasehold::clock::ManualClock;
use leasehold::executor::EffectError;
use leasehold::handler::Trace;
use leasehold::store::{Faulty, MemoryStore, Operation};
use leasehold::{ErrorKind, Executor, LockManager, Settings};
use parking_lot::Mutex;
use serde_json::Value;

/// What was written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

/// A manager on a manual clock behind a network that the test steers, and its trace.
struct Traced {
    clock: ManualClock,
    network: Faulty<MemoryStore>,
    locks: LockManager,
    trace: Trace,
    written: Written,
}

impl Traced {
    fn new() -> Self {
        let (clock, written) = (ManualClock::new(), Written::default());
        let network = Faulty::new(MemoryStore::with_clock(clock.clone()), clock.clone(), 7);
        let trace = Trace::with_clock(written.clone(), clock.clone()).unwrap();
        let locks = LockManager::builder(network.clone())
            .clock(clock.clone())
            .settings(Settings::default())
            .observer(trace.clone());
        Self {
            locks: locks.build().unwrap(),
            clock,
            network,
            trace,
            written,
        }
    }

    async fn pass(&self, seconds: u32) {
        for _ in 0..seconds * 10 {
            self.clock.advance(ms(100));
            self.locks.settled().await;
        }
    }

    /// The events so far, of a trace that may have no end.
    fn events(&self) -> Vec<Value> {
        events(&self.written.text())
    }
}

/// The events of a trace; one that has not ended gets the bracket that a reader adds.
fn events(text: &str) -> Vec<Value> {
    let whole = match text.strip_suffix(",\n") {
        Some(open) => format!("{open}]"),
        None => text.to_owned(),
    };
    serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// One slice: the name of its track, the way down to it, and how long it was, in milliseconds.
type Slice = (String, String, f64);

/// The slices of a category, in the order of their ends. What is still open has the length -1. Everything nests.
fn slices(events: &[Value], category: &str) -> Vec<Slice> {
    let mut of_category: Vec<_> = events.iter().filter(|e| e["cat"] == category).collect();
    // As readers do: by time, and what is written first comes first.
    of_category.sort_by(|a, b| a["ts"].as_f64().partial_cmp(&b["ts"].as_f64()).unwrap());
    let mut open: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let mut slices = Vec::new();
    let path = |stack: &[(String, f64)]| {
        let names: Vec<_> = stack[1..].iter().map(|(name, _)| name.as_str()).collect();
        (stack[0].0.clone(), names.join("/"))
    };
    for event in of_category {
        let name = event["name"].as_str().unwrap().to_owned();
        let stack = open.entry(event["id2"]["local"].to_string()).or_default();
        let ts = event["ts"].as_f64().unwrap() / 1e3;
        match event["ph"].as_str().unwrap() {
            "b" => stack.push((name, ts)),
            "n" => {
                stack.push((name, ts));
                let (track, down) = path(stack);
                slices.push((track, down, 0.0));
                stack.pop();
            }
            "e" => {
                let (track, down) = path(stack);
                let (begun, since) = stack.pop().unwrap();
                assert_eq!(begun, name, "what ends is what began last");
                slices.push((track, down, (ts - since).round()));
            }
            other => panic!("{other}"),
        }
    }
    for stack in open.values().filter(|stack| !stack.is_empty()) {
        let (track, down) = path(stack);
        slices.push((track, down, -1.0));
    }
    slices
}

fn slice(track: &str, down: &str, length: f64) -> Slice {
    (track.to_owned(), down.to_owned(), length)
}

/// The values of a counter, in milliseconds and in their order.
fn counts(events: &[Value], name: &str, of: &str) -> Vec<f64> {
    let counts = events
        .iter()
        .filter(|e| e["ph"] == "C" && e["name"] == name);
    counts.map(|e| e["args"][of].as_f64().unwrap()).collect()
}

fn marks(events: &[Value]) -> Vec<&str> {
    let marks = events.iter().filter(|event| event["ph"] == "i");
    marks.map(|event| event["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_hold_its_runs_and_its_release_are_slices_of_their_tracks() {
    let traced = Traced::new();
    let guard = traced.locks.lock("a").acquire().await.unwrap();
    let token = guard.token().to_string();
    let executor = guard.executor();
    let slow = executor.guarded(|tx| {
        traced.clock.advance(ms(500));
        Ok(tx.check()?)
    });
    slow.unwrap().into_value();
    let failed = executor.guarded(|tx| {
        tx.undo(|| ());
        traced.clock.advance(ms(10));
        Err::<(), _>("it failed".into())
    });
    let _ = failed.unwrap_err();
    guard.release().await.unwrap();
    traced.locks.shutdown().await;
    assert_eq!(traced.trace.finish().unwrap(), 0);

    let events = traced.events();
    assert!(traced.written.text().ends_with("\n]\n"));
    assert_eq!(
        slices(&events, "call"),
        [slice("a calls", "held", 0.0), slice("a calls", "", 0.0)]
    );
    assert_eq!(
        slices(&events, "run"),
        [
            slice("a runs", "committed/check", 0.0),
            slice("a runs", "committed", 500.0),
            slice("a runs", "", 500.0),
            slice("a runs", "rolled back/undone", 0.0),
            slice("a runs", "rolled back", 10.0),
            slice("a runs", "", 10.0),
        ]
    );
    assert_eq!(
        slices(&events, "hold"),
        [
            slice("a", "released", 510.0),
            slice("a", "release", 0.0),
            slice("a", "", 510.0),
        ]
    );
    let hold = events.iter().find(|e| e["cat"] == "hold").unwrap();
    assert_eq!(hold["args"]["token"], *token);
    let committed = events.iter().find(|e| e["name"] == "committed").unwrap();
    assert!(committed["args"]["slack (ms)"].as_f64().unwrap() > 5_000.0);
    let name = events.iter().find(|e| e["ph"] == "M").unwrap();
    assert_eq!(name["args"]["name"], hold["args"]["holder"]);
    assert_eq!(marks(&events), ["the trace ends"]);
}

#[tokio::test]
async fn a_lost_lease_is_at_risk_first_and_then_lost() {
    let traced = Traced::new();
    let guard = traced.locks.lock("a").acquire().await.unwrap();
    traced.trace.flush().unwrap();
    traced.network.block(Operation::Renew);
    traced.pass(6).await;
    traced.trace.flush().unwrap();
    let marked = slices(&traced.events(), "hold");
    assert_eq!(marked, [slice("a", "at risk", 0.0), slice("a", "", -1.0)]);

    traced.pass(6).await;
    let refused = guard.executor().guarded(|_| Ok(()));
    let _ = refused.unwrap_err();
    drop(guard);
    traced.network.unblock(Operation::Renew);
    traced.pass(1).await;
    traced.locks.shutdown().await;
    traced.trace.finish().unwrap();
    let events = traced.events();
    let downs: Vec<_> = slices(&events, "hold")
        .into_iter()
        .map(|(_, down, _)| down)
        .collect();
    let lost = "lost/lost: the deadline passed without a renewal";
    assert_eq!(downs, ["lost/at risk", lost, "lost", "release", ""]);
    assert_eq!(
        slices(&events, "run")[0],
        slice("a runs", "not started", 0.0)
    );
    let left = counts(&events, "a left", "ms");
    assert!(left[0] > 9_000.0, "{left:?}");
    assert_eq!(left.last(), Some(&0.0), "{left:?}");
    assert!(!slices(&events, "renewal").is_empty());
}

#[tokio::test]
async fn a_renewal_lifts_the_deadline_in_the_trace() {
    let traced = Traced::new();
    let guard = traced.locks.lock("a").acquire().await.unwrap();
    traced.trace.flush().unwrap();
    traced.pass(30).await;
    traced.trace.flush().unwrap();
    let left = counts(&traced.events(), "a left", "ms");
    assert!(left.len() > 1, "{left:?}");
    assert!(left.iter().all(|&left| left > 5_000.0), "{left:?}");
    drop(guard);
}

#[tokio::test]
async fn a_trace_of_a_process_that_was_killed_lacks_its_bracket_only() {
    let traced = Traced::new();
    let guard = traced.locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let whole = executor.guarded(|tx| {
        tx.check()?;
        traced.trace.flush().unwrap();
        Ok(traced.written.text())
    });
    let killed = whole.unwrap().into_value();
    assert!(killed.ends_with(",\n"), "{killed}");
    let events = events(&killed);
    assert_eq!(slices(&events, "hold"), [slice("a", "", -1.0)]);
    assert_eq!(
        slices(&events, "run"),
        [slice("a runs", "check", 0.0), slice("a runs", "", -1.0)]
    );
}

#[tokio::test]
async fn text_of_users_stays_text() {
    let traced = Traced::new();
    let guard = traced.locks.lock("a").acquire().await.unwrap();
    let text = "\"debit\" \\ \n\t\u{1} für 7 €";
    let ran = guard.executor().guarded(|tx| {
        let answer: Result<(), _> =
            tx.step(text, || Err(EffectError::unknown("no answer")), |_| ());
        Ok(answer?)
    });
    let _ = ran.unwrap_err();
    traced.trace.flush().unwrap();
    let events = traced.events();
    assert_eq!(
        marks(&events),
        [
            format!("a: step: {text}"),
            format!("a: debt: {text}: in doubt")
        ]
    );
    let ended = slices(&events, "run");
    assert!(
        ended.contains(&slice("a runs", "incomplete", 0.0)),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_grant_that_is_handed_off_is_two_holds_with_one_token() {
    let traced = Traced::new();
    let first = traced.locks.lock("a").acquire().await.unwrap();
    let token = first.token();
    let mut second = traced.locks.lock("a").into_future();
    assert!(crate::support::poll_once(&mut second).await.is_pending());
    traced.clock.advance(ms(50));
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert_eq!(second.token(), token);
    traced.clock.advance(ms(30));
    second.release().await.unwrap();
    traced.trace.flush().unwrap();
    let events = traced.events();
    let whole: Vec<_> = slices(&events, "hold")
        .into_iter()
        .filter(|(_, down, _)| down == "released")
        .collect();
    assert_eq!(
        whole,
        [slice("a", "released", 50.0), slice("a", "released", 30.0)]
    );
    let waited = slices(&events, "call");
    assert!(
        waited.contains(&slice("a calls", "held", 50.0)),
        "{waited:?}"
    );
    let callers = counts(&events, "a callers", "waiting");
    assert_eq!(callers, [1.0, 0.0]);
}

/// Writes nothing until it may.
struct Stuck {
    may: Receiver<()>,
    written: Written,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.written.0.lock().is_empty() {
            // The test has ended if nobody sends.
            let _ = self.may.recv();
        }
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run_often(executor: &Executor, times: usize) {
    for _ in 0..times {
        executor.guarded(|_| Ok(())).unwrap().into_value();
    }
}

#[tokio::test]
async fn a_writer_that_lags_costs_events_and_delays_no_run() {
    let (free, may) = channel();
    let written = Written::default();
    let stuck = Stuck {
        may,
        written: written.clone(),
    };
    let clock = ManualClock::new();
    let trace = Trace::with_clock(stuck, clock.clone()).unwrap();
    let locks = LockManager::builder(MemoryStore::with_clock(clock.clone()))
        .clock(clock)
        .observer(trace.clone())
        .build()
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let (done, is_done) = channel();
    let runs = std::thread::spawn(move || {
        // Two events each: more than the queue and the batch that is being written take.
        run_often(&executor, 20_000);
        done.send(()).unwrap();
    });
    let delayed = is_done.recv_timeout(secs(60)).is_err();
    // As often as it writes.
    drop(free);
    assert!(!delayed, "the runs waited for the writer");
    runs.join().unwrap();
    assert!(trace.dropped() > 0);
    let dropped = trace.finish().unwrap();
    let events = events(&written.text());
    let told = format!("{dropped} events were dropped");
    assert!(marks(&events).contains(&&*told), "{:?}", marks(&events));
    let ends = events
        .iter()
        .filter(|e| e["cat"] == "run" && e["ph"] == "e");
    assert!(
        ends.count() > 1_000,
        "what had a place in the queue is there"
    );
}

/// A disk that is full after the first line.
struct Full(bool);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.0, true) {
            return Err(io::Error::other("no space left"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_writer_that_fails_ends_the_trace_and_no_lock() {
    let clock = ManualClock::new();
    let trace = Trace::with_clock(Full(false), clock.clone()).unwrap();
    let locks = LockManager::builder(MemoryStore::with_clock(clock.clone()))
        .clock(clock)
        .observer(trace.clone())
        .build()
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let error = trace.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no space left"), "{error}");
    let dropped = trace.dropped();
    assert!(dropped > 0, "the acquire was not written");
    run_often(&guard.executor(), 10);
    guard.release().await.unwrap();
    assert!(trace.finish().is_err());
    assert!(trace.dropped() >= dropped + 11, "{}", trace.dropped());
}

#[tokio::test]
async fn after_its_end_a_trace_drops_what_happens() {
    let traced = Traced::new();
    assert_eq!(traced.trace.finish().unwrap(), 0);
    // The thread that writes may still be on its way out.
    while traced.trace.dropped() == 0 {
        let guard = traced.locks.lock("a").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(
        traced.trace.finish().unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(marks(&traced.events()), ["the trace ends"]);
}

/// A path that goes with the test.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn several_traces_share_a_file() {
    let name = format!("leasehold-shared-trace-{}.json", std::process::id());
    let path = Temporary(std::env::temp_dir().join(name));
    std::fs::write(&path.0, "of an earlier run").unwrap();
    let whole = Trace::create(&path.0).unwrap();
    let users = async |key: &str| {
        let trace = Trace::append(&path.0).unwrap();
        let locks = LockManager::builder(MemoryStore::new().unwrap())
            .observer(trace.clone())
            .build()
            .unwrap();
        let guard = locks.lock(key).acquire().await.unwrap();
        trace.flush().unwrap();
        run_often(&guard.executor(), 100);
        guard.release().await.unwrap();
        locks.shutdown().await;
        assert_eq!(trace.finish().unwrap(), 0);
    };
    tokio::join!(users("a"), users("b"));
    whole.finish().unwrap();
    let events: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(&path.0).unwrap()).unwrap();
    for track in ["a runs", "b runs"] {
        let runs = events
            .iter()
            .filter(|e| e["name"] == track && e["ph"] == "e");
        assert_eq!(runs.count(), 100, "{track}");
    }
    assert_eq!(marks(&events), ["the trace ends"]);
}

/// Nobody has made the file before.
#[test]
fn traces_that_are_begun_at_once_share_one_array() {
    const TRACES: usize = 8;
    for round in 0..40 {
        let name = format!("leasehold-begun-trace-{}-{round}.json", std::process::id());
        let path = Temporary(std::env::temp_dir().join(name));
        let barrier = std::sync::Barrier::new(TRACES);
        std::thread::scope(|threads| {
            for _ in 0..TRACES {
                threads.spawn(|| {
                    barrier.wait();
                    Trace::append(&path.0).unwrap()
                });
            }
        });
        assert_eq!(std::fs::read_to_string(&path.0).unwrap(), "[\n", "{round}");
    }
}

#[test]
fn a_trace_that_cannot_be_opened_is_refused() {
    let error = Trace::create("/nowhere/at/all.json").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains("/nowhere/at/all.json"),
        "{error}"
    );
}
