//! A soak: workers count for minutes, and nothing of theirs grows.

use std::collections::HashMap;
use std::time::Duration;

use crate::Options;
use crate::crew::Crew;
use crate::event::{Event, What};
use crate::fault::pause;
use crate::plan::{Plan, Resource, StoreKind};
use crate::register::Register;
use crate::series::{Folder, blank};
use crate::servers::Servers;

const WORKERS: usize = 4;
const NANOS: u64 = 1_000_000_000;

/// Averages over a span of time.
#[derive(Default, Clone, Copy, Debug)]
struct Means {
    rss_kib: f64,
    descriptors: f64,
    threads: f64,
    tasks: f64,
    keys: f64,
    sessions: f64,
}

pub fn run(kind: StoreKind, options: Options) -> bool {
    let seconds = options.seconds.unwrap_or(180);
    let part = seconds / 3;
    println!("{}: soak of {seconds} s", kind.name());
    let folder = Folder::new(kind);
    let register = Register::serve(&folder.0);
    let servers = Servers::start(kind, WORKERS, &folder.0, false);
    let plan = Plan {
        has_gauge: true,
        ..blank(kind, &register)
    };
    assert!(servers.is_free(&plan), "the store does not answer");
    let plans = (0..WORKERS).map(|seat| servers.plan(seat, Resource::Open, &plan));
    let mut crew = Crew::start(plans.collect());
    // Connections and pools reach their size.
    pause(Duration::from_secs(30));
    let began = crew.now();
    let mut left = Vec::new();
    while crew.now() < began + seconds * NANOS {
        left.push((crew.now(), servers.left()));
        pause(Duration::from_secs(1));
    }
    let ended = crew.now();
    for p in crew.end() {
        println!("  FAILED: worker {p} does not end");
        return false;
    }
    let events = crew.events.all();
    let means = |from: u64, until: u64| {
        let mut means = gauges(&events, from, until);
        let within: Vec<_> = left
            .iter()
            .filter(|(t, _)| *t >= from && *t < until)
            .collect();
        let count = within.len().max(1) as f64;
        means.keys = within.iter().map(|(_, left)| left.keys as f64).sum::<f64>() / count;
        means.sessions = within
            .iter()
            .map(|(_, left)| left.sessions as f64)
            .sum::<f64>()
            / count;
        means
    };
    let first = means(began, began + part * NANOS);
    let last = means(ended - part * NANOS, ended);
    let holds = events
        .iter()
        .filter(|event| matches!(event.what, What::Held { .. }))
        .count();
    let lost = events
        .iter()
        .filter(|event| matches!(event.what, What::Lost { .. }))
        .count();
    println!("  {holds} holds, {lost} leases lost; of a worker, first {part} s -> last {part} s:");
    let mut is_flat = holds > 0;
    for (name, first, last, slack) in [
        // The allocator's pages come and go.
        (
            "memory KiB",
            first.rss_kib,
            last.rss_kib,
            (first.rss_kib * 0.05).max(512.0),
        ),
        ("descriptors", first.descriptors, last.descriptors, 1.0),
        ("threads", first.threads, last.threads, 1.0),
        ("tasks", first.tasks, last.tasks, 1.0),
        ("keys in the store", first.keys, last.keys, 5.0),
        ("sessions in the store", first.sessions, last.sessions, 1.0),
    ] {
        let grows = last > first + slack;
        is_flat &= !grows;
        let word = if grows { "GROWS" } else { "flat" };
        println!("    {name}: {first:.1} -> {last:.1}, {word}");
    }
    is_flat
}

/// The average of the workers' gauges.
fn gauges(events: &[Event], from: u64, until: u64) -> Means {
    let mut sum: HashMap<&str, f64> = HashMap::new();
    let mut count = 0.0;
    for event in events
        .iter()
        .filter(|event| event.t >= from && event.t < until)
    {
        if let What::Gauge {
            rss_kib,
            descriptors,
            threads,
            tasks,
        } = event.what
        {
            count += 1.0;
            for (name, value) in [
                ("rss", rss_kib),
                ("descriptors", descriptors),
                ("threads", threads),
                ("tasks", tasks),
            ] {
                *sum.entry(name).or_default() += value as f64;
            }
        }
    }
    assert!(count > 0.0, "no worker reported");
    let mean = |name: &str| sum.get(name).copied().unwrap_or_default() / count;
    Means {
        rss_kib: mean("rss"),
        descriptors: mean("descriptors"),
        threads: mean("threads"),
        tasks: mean("tasks"),
        ..Means::default()
    }
}
