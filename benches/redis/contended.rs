//! Three managers that contend for one lock on a quorum: all members alive, beside another quorum
//! with one stopped or killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::LockManager;
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::quorum::Quorum;
use tokio::runtime::Runtime;

use crate::blocks::{Goal, alternate};
use crate::server::RedisServer;

const MANAGERS: usize = 3;
const BLOCK: Duration = Duration::from_millis(400);

/// What happened to the first member of a quorum.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Stopped,
    Killed,
}

pub(crate) fn quorum_over(servers: &[RedisServer]) -> Quorum<RedisStore> {
    let members = servers.iter().map(|server| {
        let options = RedisOptions::parse(&server.url(""));
        RedisStore::member(options.expect("a URL")).expect("a member")
    });
    Quorum::new(members).expect("members")
}

/// Three sets of three servers, and two of five.
pub(crate) fn run(mut servers: Vec<RedisServer>) {
    let mut take = |count: usize| servers.drain(..count).collect::<Vec<_>>();
    let alive = take(3);
    row(&alive, take(3), Fate::Stopped);
    row(&alive, take(3), Fate::Killed);
    row(&take(5), take(5), Fate::Stopped);
}

fn row(alive: &[RedisServer], mut hurt: Vec<RedisServer>, fate: Fate) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let managers = |servers: &[RedisServer]| -> Vec<_> {
        let manager = || LockManager::new(quorum_over(servers)).expect("a manager");
        (0..MANAGERS).map(|_| manager()).collect()
    };
    let (all, some) = (managers(alive), managers(&hurt));
    // Both know their members.
    let _ = (rate(&runtime, &all), rate(&runtime, &some));
    let what = match fate {
        Fate::Stopped => {
            hurt[0].pause();
            "stopped"
        }
        Fate::Killed => {
            hurt[0].kill();
            "killed"
        }
    };
    let blocks = alternate(|| rate(&runtime, &all), || rate(&runtime, &some));
    let name = format!("3 managers contend, {} members, one {what}", alive.len());
    blocks.print(&name, Goal::AtLeast(0.5), "holds/s");
    println!(
        "    tasks alive at the end: {}",
        runtime.metrics().num_alive_tasks()
    );
    runtime.shutdown_timeout(Duration::from_secs(2));
    if fate == Fate::Stopped {
        hurt[0].resume();
    }
}

/// Holds in a second, of all managers.
fn rate(runtime: &Runtime, managers: &[LockManager]) -> f64 {
    let holds = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let tasks: Vec<_> = managers
        .iter()
        .map(|locks| {
            let (locks, holds) = (locks.clone(), Arc::clone(&holds));
            runtime.spawn(async move {
                while began.elapsed() < BLOCK {
                    if let Ok(guard) = locks.lock("contended").acquire().await {
                        holds.fetch_add(1, Ordering::Relaxed);
                        drop(guard.release().await);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("a task that ends");
    }
    holds.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}
