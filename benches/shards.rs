//! What it costs to divide shards among members:
//! `cargo bench --bench shards --features redis,postgres`.
//!
//! How long until all are owned, how long a join and a leave take until the loads are even again,
//! how long a shard that moves has no owner, how long after a crash, and what members that are idle
//! ask of the server. Each member has a manager of its own, all in one process, on a server that
//! the program starts. Name rows to run only those; `list` prints their names.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, on a real machine"
)]
#![allow(clippy::unwrap_used)]
#![allow(clippy::duplicate_mod, reason = "both servers need the same few words")]

#[path = "../tests/support/postgres.rs"]
mod postgres;
#[path = "../tests/support/redis.rs"]
mod redis;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::shards::Shard;
use leasehold::{Error, LockManager, Settings};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TTL: Duration = Duration::from_secs(6);

struct Row {
    name: &'static str,
    server: Kind,
    shards: u32,
    members: usize,
    rounds: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Redis,
    Postgres,
}

const ROWS: [Row; 5] = [
    row("redis_12", Kind::Redis, 12, 3, 10),
    row("redis_256", Kind::Redis, 256, 4, 5),
    row("redis_10000", Kind::Redis, 10_000, 4, 1),
    row("postgres_12", Kind::Postgres, 12, 3, 10),
    row("postgres_256", Kind::Postgres, 256, 4, 5),
];

const fn row(name: &'static str, server: Kind, shards: u32, members: usize, rounds: usize) -> Row {
    Row {
        name,
        server,
        shards,
        members,
        rounds,
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

type Ledger = Arc<Mutex<Book>>;

struct Member {
    number: usize,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
}

struct Crew {
    url: String,
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
        let (number, ledger) = (self.next, Arc::clone(&self.ledger));
        self.next += 1;
        let work = move |shard: Shard| {
            let ledger = Arc::clone(&ledger);
            async move {
                let index = shard.index();
                {
                    let mut book = ledger.lock().unwrap();
                    let former = book.owners.insert(index, number);
                    book.overlaps += usize::from(former.is_some());
                    let gap = book.ended.remove(&index).map(|ended| ended.elapsed());
                    book.gaps.extend(gap);
                }
                shard.leaving().await;
                let mut book = ledger.lock().unwrap();
                book.owners.remove(&index);
                book.ended.insert(index, Instant::now());
                Ok::<_, Error>(())
            }
        };
        let stop = CancellationToken::new();
        let shards = locks.shards("bench", self.shards);
        let serving = tokio::spawn(shards.serve(work).until(stop.clone()));
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
                let book = self.ledger.lock().unwrap();
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
        std::mem::take(&mut self.ledger.lock().unwrap().gaps)
    }
}

fn quantile(spans: &mut [Duration], part: f64) -> Duration {
    spans.sort();
    let last = spans.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    spans.get(index).copied().unwrap_or_default()
}

fn show(what: &str, mut settled: Vec<Duration>, mut gaps: Vec<Duration>) {
    println!(
        "   {what}: settled after {:.2?} (median of {}), {} moves, gap p50 {:.2?} p99 {:.2?}",
        quantile(&mut settled, 0.5),
        settled.len(),
        gaps.len(),
        quantile(&mut gaps, 0.5),
        quantile(&mut gaps, 0.99),
    );
}

async fn run(row: &Row, url: String, commands: impl Fn() -> Option<u64>) {
    let mut crew = Crew {
        url,
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
    println!("   two owners: {}", crew.ledger.lock().unwrap().overlaps);
    for member in &crew.members {
        member.stop.cancel();
    }
    for member in crew.members {
        member.serving.await.unwrap().unwrap();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    if words.iter().any(|word| *word == "list") {
        ROWS.iter().for_each(|row| println!("{}", row.name));
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for row in &ROWS {
        if !words.is_empty() && !words.iter().any(|word| *word == row.name) {
            continue;
        }
        println!(
            "== {}: {} shards, {} members, ttl {TTL:?}",
            row.name, row.shards, row.members
        );
        match row.server {
            Kind::Redis => {
                let server = redis::RedisServer::start();
                let commands = || {
                    let info = server.cli(&["INFO", "stats"]);
                    let mut lines = info.lines();
                    lines.find_map(|line| {
                        let count = line.strip_prefix("total_commands_processed:")?;
                        count.trim().parse().ok()
                    })
                };
                let url = server.url("restart_quarantine=off");
                runtime.block_on(run(row, url, commands));
            }
            Kind::Postgres => {
                let server = postgres::PgServer::start_with(&["fsync=on"]);
                let url = format!("{}?create=auto", server.url());
                runtime.block_on(run(row, url, || None));
            }
        }
    }
}
