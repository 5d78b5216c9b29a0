//! Ten thousand holds: the processor time of their renewals, and the memory of each.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::{LockGuard, LockManager, Settings};
use redis::Value;
use rustix::time::{ClockId, clock_gettime};

use crate::server::RedisServer;
use crate::{ALLOCATED, blocks, raw, runtime};

const HOLDS: usize = 10_000;
const BATCH: usize = 500;
const TTL: Duration = Duration::from_secs(3);
const BLOCKS: usize = 31;
const BLOCK: Duration = Duration::from_secs(1);

/// What this process, or this thread, has used of the processors.
fn cpu(whose: ClockId) -> f64 {
    let time = clock_gettime(whose);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn renewals(server: &RedisServer) -> f64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_pexpire:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.map_or(0.0, |calls| calls.parse().expect("a number"))
}

pub(crate) fn run(servers: &[RedisServer]) {
    let server = &servers[0];
    let url = server.url("");
    let runtime = runtime();
    let clock = Clock::system().expect("the machine's clocks");
    let store = runtime.block_on(RedisStore::connect(&url));
    let mut settings = Settings::default();
    settings.ttl = TTL;
    let locks = LockManager::builder(store.expect("a store"))
        .settings(settings)
        .build()
        .expect("a manager");

    // The floor: one raw script call for as many keys, in batches.
    let mut connection = runtime.block_on(raw::connect(server.port()));
    let hash = runtime.block_on(raw::load(&mut connection, raw::RENEW));
    let keys: Vec<_> = (0..HOLDS)
        .map(|number| format!("floor/{number:010}"))
        .collect();
    runtime.block_on(async {
        for key in &keys {
            let mut set = redis::cmd("SET");
            set.arg(key)
                .arg(raw::OWNER)
                .exec_async(&mut connection)
                .await
                .expect("a reply");
        }
    });
    let mut floor = |pause: Option<Duration>| {
        // Of this thread: the holds are renewed on another meanwhile.
        let before = cpu(ClockId::ThreadCPUTime);
        runtime.block_on(async {
            for batch in keys.chunks(BATCH) {
                if let Some(pause) = pause {
                    clock.sleep(pause).await;
                }
                let mut call = redis::cmd("EVALSHA");
                call.arg(&hash).arg(batch.len()).arg(batch);
                for _ in batch {
                    call.arg(raw::OWNER);
                }
                for _ in batch {
                    call.arg("600000");
                }
                let answer: Value = call.query_async(&mut connection).await.expect("an answer");
                assert!(matches!(answer, Value::Array(answers) if answers.len() == batch.len()));
            }
        });
        (cpu(ClockId::ThreadCPUTime) - before) / (HOLDS as f64 / 1_000.0)
    };

    let guards = hold(&runtime, &locks);
    // All of this process: while the renewals are measured it does nothing else.
    let ours = || {
        let (calls, before) = (renewals(server), cpu(ClockId::ProcessCPUTime));
        runtime.block_on(clock.sleep(BLOCK));
        let used = cpu(ClockId::ProcessCPUTime) - before;
        used / ((renewals(server) - calls) / 1_000.0)
    };
    // As far apart as they are due: a thread that has rested pays for its waking up, in the floor
    // as in ours.
    let apart = BLOCK * BATCH as u32 / HOLDS as u32;
    let (mut ratios, mut floors, mut all_ours) = (Vec::new(), Vec::new(), Vec::new());
    let mut without_rest = Vec::new();
    for _ in 0..BLOCKS {
        let (one, other) = (floor(Some(apart)), ours());
        ratios.push(other / one);
        floors.push(one);
        all_ours.push(other);
        without_rest.push(other / floor(None));
    }
    assert!(
        guards.iter().all(|guard| guard.lease().is_live()),
        "a lease was lost on the way"
    );
    let (_, floor, _) = blocks::interval(&mut floors);
    let (_, ours, _) = blocks::interval(&mut all_ours);
    let (low, middle, high) = blocks::interval(&mut ratios);
    let reported = if middle <= 1.5 { "reached" } else { "MISSED" };
    println!(
        "renew_10k, processor time / one raw script call {middle:.3} [{low:.3}, {high:.3}]  floor {:.3} ms, ours {:.3} ms per 1,000  goal 1.50: {reported}",
        floor * 1e3,
        ours * 1e3
    );
    let (low, middle, high) = blocks::interval(&mut without_rest);
    println!(
        "renew_10k, processor time / such calls without rest {middle:.3} [{low:.3}, {high:.3}]"
    );
    drop(guards);
    runtime.block_on(locks.shutdown());
}

fn hold(runtime: &tokio::runtime::Runtime, locks: &LockManager) -> Vec<LockGuard> {
    // One hold and its end make the connections and the tables that no hold is to blame for.
    runtime.block_on(async {
        let first = locks.lock("first").acquire().await.expect("it is free");
        drop(first.release().await);
    });
    let mut guards = Vec::with_capacity(HOLDS);
    let before = ALLOCATED.load(Ordering::Relaxed);
    runtime.block_on(async {
        for number in 0..HOLDS {
            guards.push(
                locks
                    .lock(format!("ours/{number:011}"))
                    .acquire()
                    .await
                    .expect("it is free"),
            );
        }
    });
    let each = (ALLOCATED.load(Ordering::Relaxed) - before) as f64 / HOLDS as f64;
    let reported = if each <= 1_024.0 { "reached" } else { "MISSED" };
    println!(
        "renew_10k, memory of a held lock              {each:.0} bytes  goal 1024: {reported}"
    );
    guards
}
