//! What it costs to divide shards among members:
//! `cargo bench --bench shards --features redis,postgres,zookeeper-async`.
//!
//! How long until all are owned, how long a join and a leave take until the loads are even again,
//! how long a shard that moves has no owner, and what idle members ask of the server. For that each
//! member has a manager of its own, all in one process. Then, with a process for each member: how
//! long after a crash all are owned again; and what 10,000 shards cost beside 10,000 locks that are
//! kept. The program starts the servers. Name rows to run only those; `list` prints their names.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, on a real machine"
)]
#![allow(clippy::unwrap_used)]
#![allow(clippy::duplicate_mod, reason = "all servers need the same few words")]

mod by_hand;
mod fleet;
#[path = "../../tests/support/postgres.rs"]
mod postgres;
#[path = "../../tests/support/redis.rs"]
mod redis;
#[path = "../../tests/support/zookeeper.rs"]
mod zookeeper;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use leasehold::shards::Shard;
use leasehold::{Error, LockManager, Settings};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use fleet::{Fleet, Role};

const NAME: &str = "bench";
/// So many of the longest gaps are shown.
const LONGEST: usize = 8;
const TTL: Duration = Duration::from_secs(6);

struct Row {
    name: &'static str,
    server: Kind,
    shards: u32,
    members: usize,
    /// How many joins and leaves are measured, with all members in one process; 0: none.
    rounds: usize,
    /// How many crashes are measured, with a process for each member.
    crashes: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Redis,
    Postgres,
    ZooKeeper,
    Files,
    /// Redis, with a loop that a user writes.
    ByHand,
}

const ROWS: [Row; 11] = [
    row("redis_12", Kind::Redis, (12, 3), 30, 3),
    row("redis_256", Kind::Redis, (256, 4), 15, 3),
    row("redis_10000", Kind::Redis, (10_000, 4), 0, 1),
    row("by_hand_12", Kind::ByHand, (12, 3), 30, 0),
    row("by_hand_256", Kind::ByHand, (256, 4), 15, 0),
    row("postgres_12", Kind::Postgres, (12, 3), 30, 3),
    row("postgres_256", Kind::Postgres, (256, 4), 15, 3),
    row("zookeeper_12", Kind::ZooKeeper, (12, 3), 30, 3),
    row("zookeeper_256", Kind::ZooKeeper, (256, 4), 15, 3),
    row("files_12", Kind::Files, (12, 3), 30, 3),
    row("files_256", Kind::Files, (256, 4), 15, 3),
];

const fn row(
    name: &'static str,
    server: Kind,
    (shards, members): (u32, usize),
    rounds: usize,
    crashes: usize,
) -> Row {
    Row {
        name,
        server,
        shards,
        members,
        rounds,
        crashes,
    }
}

/// When the work of each shard ended, and who owns what.
#[derive(Default)]
struct Book {
    owners: HashMap<u32, usize>,
    ended: HashMap<u32, Instant>,
    gaps: Vec<Duration>,
    overlaps: usize,
}

#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Book>>);

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    /// The work of a shard begins.
    fn begins(&self, shard: u32, member: usize) {
        let mut book = self.book();
        let former = book.owners.insert(shard, member);
        book.overlaps += usize::from(former.is_some());
        let gap = book.ended.remove(&shard).map(|ended| ended.elapsed());
        book.gaps.extend(gap);
    }

    /// The work of a shard has ended. It is not released yet.
    fn ends(&self, shard: u32) {
        let mut book = self.book();
        book.owners.remove(&shard);
        book.ended.insert(shard, Instant::now());
    }
}

struct Member {
    number: usize,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
}

struct Crew {
    url: String,
    is_by_hand: bool,
    shards: u32,
    ledger: Ledger,
    members: Vec<Member>,
    next: usize,
}

impl Crew {
    async fn join(&mut self) {
        let mut settings = Settings::default();
        settings.ttl = TTL;
        let builder = LockManager::builder_for_url(&self.url, settings).await;
        let locks = builder.unwrap().build().unwrap();
        let (number, ledger) = (self.next, self.ledger.clone());
        self.next += 1;
        let stop = CancellationToken::new();
        let serving = if self.is_by_hand {
            let member = by_hand::serve(locks, self.shards, number, ledger, stop.clone());
            tokio::spawn(member)
        } else {
            let work = move |shard: Shard| {
                let ledger = ledger.clone();
                async move {
                    ledger.begins(shard.index(), number);
                    shard.leaving().await;
                    ledger.ends(shard.index());
                    Ok::<_, Error>(())
                }
            };
            let shards = locks.shards(NAME, self.shards);
            tokio::spawn(shards.serve(work).until(stop.clone()))
        };
        self.members.push(Member {
            number,
            stop,
            serving,
        });
    }

    /// Until every shard is owned and the loads are even. Gives the time that it took.
    async fn settled(&self, since: Instant) -> Duration {
        let (shards, members) = (self.shards as usize, self.members.len());
        loop {
            {
                let book = self.ledger.book();
                let is_even = |member: &Member| {
                    let ours = |owner: &&usize| **owner == member.number;
                    let load = book.owners.values().filter(ours).count();
                    (shards / members..=shards.div_ceil(members)).contains(&load)
                };
                if book.owners.len() == shards && self.members.iter().all(is_even) {
                    return since.elapsed();
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn gaps(&self) -> Vec<Duration> {
        std::mem::take(&mut self.ledger.book().gaps)
    }
}

fn quantile(spans: &mut [Duration], part: f64) -> Duration {
    spans.sort();
    let last = spans.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    spans.get(index).copied().unwrap_or_default()
}

fn show(what: &str, mut settled: Vec<Duration>, mut gaps: Vec<Duration>) {
    let [half, all] = [0.5, 1.0].map(|part| quantile(&mut settled, part));
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| quantile(&mut gaps, part));
    let (rounds, moves) = (settled.len(), gaps.len());
    println!("   {what}: settled after {half:.2?} (median of {rounds}, longest {all:.2?})");
    println!("     gap of {moves} moves: p50 {p50:.2?} p90 {p90:.2?} p99 {p99:.2?}");
    let longest = gaps.split_off(moves.saturating_sub(LONGEST));
    println!("     the longest: {longest:.2?}");
}

async fn run(row: &Row, url: String, commands: impl Fn() -> Option<u64>) {
    let mut crew = Crew {
        url,
        is_by_hand: row.server == Kind::ByHand,
        shards: row.shards,
        ledger: Ledger::default(),
        members: Vec::new(),
        next: 0,
    };
    let began = Instant::now();
    for _ in 0..row.members {
        crew.join().await;
    }
    println!(
        "   all owned and even after {:.2?}",
        crew.settled(began).await
    );
    let _ = crew.gaps();
    let idle = Duration::from_secs(10);
    if let Some(before) = commands() {
        tokio::time::sleep(idle).await;
        let sent = commands().unwrap_or(before) - before;
        println!(
            "   idle: {:.1} commands in the server per second",
            sent as f64 / idle.as_secs_f64()
        );
    }
    let (mut joins, mut join_gaps) = (Vec::new(), Vec::new());
    let (mut leaves, mut leave_gaps) = (Vec::new(), Vec::new());
    for _ in 0..row.rounds {
        let began = Instant::now();
        crew.join().await;
        joins.push(crew.settled(began).await);
        join_gaps.extend(crew.gaps());
        let began = Instant::now();
        let member = crew.members.remove(0);
        member.stop.cancel();
        leaves.push(crew.settled(began).await);
        leave_gaps.extend(crew.gaps());
        member.serving.await.unwrap().unwrap();
    }
    show("a join", joins, join_gaps);
    show("a planned leave", leaves, leave_gaps);
    println!("   two owners: {}", crew.ledger.book().overlaps);
    for member in &crew.members {
        member.stop.cancel();
    }
    for member in crew.members {
        member.serving.await.unwrap().unwrap();
    }
}

/// With a process for each member: how long until all is owned after the start, after a crash, and
/// after the one that follows it has joined.
fn crash(row: &Row, url: &str) -> Fleet {
    let began = Instant::now();
    let mut fleet = Fleet::start(Role::Serves, url, row.shards as usize, row.members);
    let first = fleet.settled(began);
    println!("   processes: all owned and even after {first:.2?}");
    let (mut crashes, mut joins) = (Vec::new(), Vec::new());
    for _ in 0..row.crashes {
        let began = Instant::now();
        fleet.kill_first();
        crashes.push(fleet.settled(began));
        let began = Instant::now();
        fleet.join();
        joins.push(fleet.settled(began));
    }
    println!("   after a crash: {crashes:.2?}; after the next one has joined: {joins:.2?}");
    fleet
}

/// An idle fleet beside one that keeps as many locks, on a server of its own.
fn beside_kept_locks(fleet: &Fleet, row: &Row, server: &redis::RedisServer) {
    let other = redis::RedisServer::start();
    let (url, locks) = (other.url("restart_quarantine=off"), row.shards as usize);
    let keeps = Fleet::start(Role::Keeps, &url, locks, row.members);
    let _ = keeps.settled(Instant::now());
    for _ in 0..3 {
        let [ours, kept] = fleet::idle([(fleet, pid(server)), (&keeps, pid(&other))]);
        println!(
            "   idle, % of a core: server {:.2}, members {:.2}; of kept locks: server {:.2}, holders {:.2}; ratios {:.2} and {:.2}",
            ours[0] * 100.0,
            ours[1] * 100.0,
            kept[0] * 100.0,
            kept[1] * 100.0,
            ours[0] / kept[0],
            ours[1] / kept[1],
        );
    }
}

/// A row on a store whose requests are not counted.
fn without_count(runtime: &Runtime, row: &Row, url: String) {
    runtime.block_on(run(row, url.clone(), || None));
    drop(crash(row, &url));
}

fn info(server: &redis::RedisServer, section: &str, field: &str) -> Option<u64> {
    let info = server.cli(&["INFO", section]);
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
}

fn pid(server: &redis::RedisServer) -> u32 {
    let pid = info(server, "server", "process_id:").unwrap();
    u32::try_from(pid).unwrap()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Runtime::new().unwrap();
    if let [role, url, count] = &words[..]
        && url.contains("://")
    {
        return runtime.block_on(fleet::child(role, url, count.parse().unwrap()));
    }
    let words: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    if words.iter().any(|word| *word == "list") {
        ROWS.iter().for_each(|row| println!("{}", row.name));
        return;
    }
    for row in &ROWS {
        if !words.is_empty() && !words.iter().any(|word| *word == row.name) {
            continue;
        }
        println!(
            "== {}: {} shards, {} members, ttl {TTL:?}",
            row.name, row.shards, row.members
        );
        match row.server {
            Kind::Redis | Kind::ByHand => {
                let server = redis::RedisServer::start();
                let url = server.url("restart_quarantine=off");
                let commands = || info(&server, "stats", "total_commands_processed:");
                if row.rounds > 0 {
                    runtime.block_on(run(row, url.clone(), commands));
                }
                if row.crashes == 0 {
                    continue;
                }
                let fleet = crash(row, &url);
                if row.shards == leasehold::shards::MAX_SHARDS {
                    beside_kept_locks(&fleet, row, &server);
                }
            }
            Kind::Postgres => {
                let server = postgres::PgServer::start_with(&["fsync=on"]);
                let url = format!("{}?create=auto", server.url());
                without_count(&runtime, row, url);
            }
            Kind::ZooKeeper => {
                let server = zookeeper::Server::start();
                let options = format!("session_timeout={}s&tick_time=500ms", TTL.as_secs());
                let url = format!("zookeeper://{}/?{options}", server.address());
                without_count(&runtime, row, url);
            }
            Kind::Files => {
                let name = format!("leasehold-bench-{}", std::process::id());
                let folder = std::env::temp_dir().join(name);
                without_count(&runtime, row, format!("file://{}", folder.display()));
                std::fs::remove_dir_all(folder).unwrap();
            }
        }
    }
}
