//! A series of faults on one store, and its report: N1 to N5, overlaps, recovery.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::Options;
use crate::crew::{Crew, PATIENCE};
use crate::event::{Event, Point, What};
use crate::fault::{Fault, menu, pause, strike};
use crate::history::history;
use crate::judge::{Entry, Verdict, judge};
use crate::plan::{Plan, Resource, StoreKind, Work};
use crate::register::Register;
use crate::servers::Servers;

const WORKERS: usize = 4;
const TASKS: u32 = 2;
/// Between the end of one fault and the next.
const CALM: Duration = Duration::from_millis(300);
/// On top of the bound of N5, for servers that start and machines that stall.
const MACHINE: Duration = Duration::from_secs(10);

/// The directory of a run, deleted at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(kind: StoreKind) -> Self {
        let name = format!("leasehold-nemesis-{}-{}", kind.name(), std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn blank(kind: StoreKind, register: &Register) -> Plan {
    Plan {
        p: 0,
        kind,
        url: String::new(),
        counter_url: String::new(),
        ttl: kind.ttl(),
        resource: Resource::Open,
        work: Work::Count { tasks: TASKS },
        socket: register.socket.clone(),
        has_gauge: false,
    }
}

/// What came of one series.
#[derive(Default)]
struct Series {
    verdict: Verdict,
    /// N5.
    late: Vec<String>,
    struck: BTreeMap<String, usize>,
    /// From the end of each fault to the next grant, and until everybody had one.
    first: Vec<Duration>,
    everybody: Vec<Duration>,
    /// For other judges.
    history: String,
}

pub fn run(kind: StoreKind, options: Options) -> bool {
    let mut dice = Rng::with_seed(options.seed);
    let began = Instant::now();
    println!("{}: seed {}", kind.name(), options.seed);
    let mut faults = menu(kind);
    let has_promotion = kind == StoreKind::Postgres && options.faults > faults.len();
    // A short series takes a part of the menu, and every fault has its chance.
    if options.faults < faults.len() {
        dice.shuffle(&mut faults);
        faults.truncate(options.faults);
    }
    let all = faults.clone();
    while faults.len() < options.faults - usize::from(has_promotion) {
        faults.push(all[dice.usize(..all.len())].unaimed());
    }
    if has_promotion {
        faults.push(Fault::Promotion);
    }
    let fenced = series(kind, kind.fenced(), &faults, has_promotion, &mut dice);
    let pauses = vec![Fault::Pause(Some(Point::Commit)); options.pauses];
    let open = series(kind, Resource::Open, &pauses, false, &mut dice);
    if let Some(path) = &options.history {
        let text = fenced.history.clone() + &open.history;
        std::fs::write(path, text).expect("the file of the histories can be written");
    }
    let mut is_good = report("with a fence", &fenced);
    is_good &= report("without a fence", &open);
    let overlaps = open.verdict.overlaps;
    if options.pauses > 0 {
        println!(
            "  without a fence: {overlaps} overlaps in {} aimed pauses, {} per 1,000",
            options.pauses,
            overlaps * 1_000 / options.pauses
        );
    }
    println!(
        "  {}: {} in {:.0} s",
        kind.name(),
        if is_good { "good" } else { "FAILED" },
        began.elapsed().as_secs_f64()
    );
    is_good
}

fn series(
    kind: StoreKind,
    resource: Resource,
    faults: &[Fault],
    has_standby: bool,
    dice: &mut Rng,
) -> Series {
    let mut series = Series::default();
    if faults.is_empty() {
        return series;
    }
    let folder = Folder::new(kind);
    let register = Register::serve(&folder.0);
    let mut servers = Servers::start(kind, WORKERS, &folder.0, has_standby);
    let plan = blank(kind, &register);
    // It makes what the store makes once, too.
    assert!(servers.is_free(&plan), "the store does not answer");
    let before = servers.left();
    let plans = (0..WORKERS).map(|seat| servers.plan(seat, resource, &plan));
    let mut crew = Crew::start(plans.collect());
    recovered(&mut series, &crew, "at the start", 0, kind, crew.now());
    series.first.clear();
    series.everybody.clear();
    for fault in faults {
        pause(CALM);
        let text = format!("{fault:?}");
        let is_there = strike(*fault, &mut servers, &mut crew, kind.ttl(), dice);
        if !is_there {
            series
                .late
                .push(format!("{text}: no worker came to the point"));
        }
        let (from, ended) = (crew.events.len(), crew.now());
        recovered(&mut series, &crew, &text, from, kind, ended);
        eprintln!(
            "{} {text}: everybody had the lock {:.1?} after it",
            kind.name(),
            series.everybody.last().copied().unwrap_or_default()
        );
        *series.struck.entry(text).or_default() += 1;
    }
    for p in crew.end() {
        series.late.push(format!("worker {p} does not end"));
    }
    nothing_is_left(&mut series, &servers, &plan, before.sessions);
    let log: Vec<Entry> = match resource {
        Resource::Server => servers.log(),
        _ => {
            let log = register.log();
            let entries = log.iter().map(|line| Entry::parse(line));
            entries.map(|entry| entry.expect("an entry")).collect()
        }
    };
    let events = crew.events.all();
    let is_fenced = resource != Resource::Open;
    let name = format!("{}, {resource:?}", kind.name());
    series.history = history(&name, &events, &crew.kills, &log, is_fenced);
    series.verdict = judge(&events, &crew.kills, &log, is_fenced);
    keep_if_bad(kind, &series, &events, &log);
    series
}

/// N5: everybody gets the lock within the longest TTL, the TTL, and two seconds.
fn recovered(
    series: &mut Series,
    crew: &Crew,
    what: &str,
    from: usize,
    kind: StoreKind,
    ended: u64,
) {
    let live: HashSet<u32> = crew.processes.iter().map(|process| process.p).collect();
    let bound = kind.ttl() * 2 + Duration::from_secs(2) + MACHINE;
    let (mut first, mut last) = (None, Duration::ZERO);
    let mut had: HashSet<(u32, u32)> = HashSet::new();
    let everybody = crew.events.wait_for(from, PATIENCE, |event| {
        let is_held = matches!(event.what, What::Held { .. });
        if is_held && event.t >= ended && live.contains(&event.p) {
            last = Duration::from_nanos(event.t - ended);
            first.get_or_insert(last);
            had.insert((event.p, event.task));
        }
        (had.len() == live.len() * TASKS as usize).then_some(())
    });
    if everybody.is_none() {
        series.late.push(format!(
            "{what}: {} of {} tasks had the lock within {PATIENCE:?}",
            had.len(),
            crew.tasks()
        ));
    } else if last > bound {
        series
            .late
            .push(format!("{what}: {last:?} until everybody had the lock"));
    }
    series.first.extend(first);
    series.everybody.push(last);
}

/// N5: no key, no session.
fn nothing_is_left(series: &mut Series, servers: &Servers, plan: &Plan, sessions: u64) {
    let end = Instant::now() + PATIENCE;
    let mut is_free = servers.is_free(plan);
    while Instant::now() < end && !is_free {
        pause(Duration::from_millis(100));
        is_free = servers.is_free(plan);
    }
    let mut left = servers.left();
    while Instant::now() < end && left.sessions > sessions {
        pause(Duration::from_millis(100));
        left = servers.left();
    }
    if !is_free {
        series
            .late
            .push("the lock is not free at the end".to_owned());
    }
    if left.sessions > sessions {
        let more = left.sessions - sessions;
        series.late.push(format!("{more} sessions are left"));
    }
}

/// What a person needs to find the reason.
fn keep_if_bad(kind: StoreKind, series: &Series, events: &[Event], log: &[Entry]) {
    if series
        .violations()
        .iter()
        .all(|(_, found)| found.is_empty())
    {
        return;
    }
    let name = format!(
        "leasehold-nemesis-{}-{}.txt",
        kind.name(),
        std::process::id()
    );
    let path: &Path = &std::env::temp_dir().join(name);
    let mut text = String::new();
    for event in events {
        text += &serde_json::to_string(event).expect("an event is JSON");
        text.push('\n');
    }
    for entry in log {
        text += &format!("{entry:?}\n");
    }
    match std::fs::write(path, text) {
        Ok(()) => println!("  everything that happened: {}", path.display()),
        Err(why) => println!("  what happened could not be kept: {why}"),
    }
}

impl Series {
    fn violations(&self) -> [(&'static str, &[String]); 5] {
        let verdict = &self.verdict;
        [
            ("N1", &verdict.n1),
            ("N2", &verdict.n2),
            ("N3", &verdict.n3),
            ("N4", &verdict.n4),
            ("N5", &self.late),
        ]
    }
}

fn report(name: &str, series: &Series) -> bool {
    if series.struck.is_empty() {
        return true;
    }
    let faults: usize = series.struck.values().sum();
    let verdict = &series.verdict;
    let mut outcomes: Vec<_> = verdict.outcomes.iter().collect();
    outcomes.sort_unstable();
    println!(
        "  {name}: {faults} faults, {} holds, {} writes, {outcomes:?}",
        verdict.holds, verdict.writes
    );
    let kinds: Vec<_> = series
        .struck
        .iter()
        .map(|(fault, count)| format!("{fault} {count}"))
        .collect();
    println!("    faults: {}", kinds.join(", "));
    let violations = series.violations();
    let counts: Vec<_> = violations
        .iter()
        .map(|(check, found)| format!("{check} {}", found.len()))
        .collect();
    println!("    {}", counts.join(", "));
    for (check, found) in violations {
        for violation in found.iter().take(5) {
            println!("    {check}: {violation}");
        }
    }
    println!(
        "    next grant after a fault: p50 {:.2?}, p99 {:.2?}; everybody: p50 {:.2?}, p99 {:.2?}",
        percentile(&series.first, 50),
        percentile(&series.first, 99),
        percentile(&series.everybody, 50),
        percentile(&series.everybody, 99)
    );
    // A run in which nothing happened shows nothing.
    let is_alive = verdict.holds > faults && verdict.writes > faults;
    if !is_alive {
        println!("    FAILED: too little happened");
    }
    is_alive && violations.iter().all(|(_, found)| found.is_empty())
}

fn percentile(spans: &[Duration], percent: usize) -> Duration {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    let rank = (spans.len() * percent).div_ceil(100).max(1);
    spans.get(rank - 1).copied().unwrap_or_default()
}
