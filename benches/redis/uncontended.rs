//! Acquire and release of a free lock.

use std::time::Duration;

use leasehold::LockManager;
use leasehold::redis::RedisStore;

use crate::blocks::{Goal, alternate, compare, timed};
use crate::fleet::busy_micros;
use crate::peers::Peer;
use crate::server::RedisServer;
use crate::{raw, runtime};

const ROUNDS: u32 = 300;

pub(crate) fn run(servers: &[RedisServer]) {
    let server = &servers[0];
    let runtime = runtime();
    let mut connection = runtime.block_on(raw::connect(server.port()));
    let release = runtime.block_on(raw::load(&mut connection, raw::COMPARE_AND_DELETE));
    let store = runtime.block_on(RedisStore::connect(&server.url("")));
    let locks = LockManager::new(store.expect("a store")).expect("a manager");

    let mut floor = || {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..ROUNDS {
                    raw::set(&mut connection, "floor").await;
                    raw::release(&mut connection, &release, "floor").await;
                }
            });
        })
        .1
    };
    let ours = || {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..ROUNDS {
                    let guard = locks.lock("ours").acquire().await.expect("it is free");
                    drop(guard.release().await);
                }
            });
        })
        .1
    };
    print_parts(server, &mut floor, ours);
    let each = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let Some(mut peer) = Peer::start("pair", &servers[..1]) else {
        return compare(
            "acquire + release / SET NX PX + compare-and-delete",
            Goal::AtMost(1.1),
            ROUNDS,
            floor,
            ours,
        );
    };
    // All three in each block, so that they meet the same machine.
    let mut floors = Vec::new();
    let mut peers = Vec::new();
    let mut blocks = alternate(
        || {
            floors.push(each(floor()));
            floors[floors.len() - 1]
        },
        || {
            let took = each(ours());
            peers.push(each(peer.rounds(ROUNDS)));
            took
        },
    );
    blocks.print(
        "acquire + release / SET NX PX + compare-and-delete",
        Goal::AtMost(1.1),
        "us",
    );
    // The first was to warm up.
    blocks.ours = peers.split_off(1);
    blocks.print("the same by rslock", Goal::None, "us");
}

/// What the server's work and the changes of threads are in a pair of each side.
fn print_parts(
    server: &RedisServer,
    mut floor: impl FnMut() -> Duration,
    ours: impl Fn() -> Duration,
) {
    let part = |name: &str, commands: &[&str], block: &mut dyn FnMut() -> Duration| {
        let _ = block();
        let before = (busy_micros(server, commands), waits());
        let took = block();
        let after = (busy_micros(server, commands), waits());
        let each = |count: u64| count as f64 / f64::from(ROUNDS);
        println!(
            "    a pair of {name}: {:.1} us, of it the server executes {:.1} us; our threads wait {:.1} times",
            took.as_secs_f64() * 1e6 / f64::from(ROUNDS),
            each(after.0 - before.0),
            each(after.1 - before.1)
        );
    };
    part("the floor", &["set", "evalsha"], &mut floor);
    part("ours", &["evalsha"], &mut || ours());
}

/// How often the threads of this process have given up their processor to wait.
fn waits() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let line = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse::<u64>()
                .ok()
        };
        status.lines().find_map(line)
    };
    threads.filter_map(of_thread).sum::<u64>()
}
