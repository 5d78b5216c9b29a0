//! Three managers that contend for one lock on a quorum: all members alive, one stopped, one killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::store::{Quorum, RedisOptions, RedisStore};
use leasehold::{LockManager, Settings};

use crate::server::RedisServer;

const MANAGERS: usize = 3;
const SPAN: Duration = Duration::from_secs(3);

pub(crate) fn run() {
    for members in [3, 5] {
        let mut servers: Vec<_> = (0..members).map(|_| RedisServer::start()).collect();
        let managers: Vec<_> = (0..MANAGERS).map(|_| manager(&servers)).collect();
        let alive = rate(&managers);
        println!("contended, {members} members, all alive: {alive:.0} holds/s");
        let report = |what: &str, rate: f64| {
            let ratio = rate / alive;
            println!(
                "contended, {members} members, one {what}: {rate:.0} holds/s, {ratio:.2} of all alive (goal 0.50)"
            );
        };
        servers[0].pause();
        report("stopped", rate(&managers));
        servers[0].resume();
        drop(servers.remove(0));
        report("killed", rate(&managers));
    }
}

fn manager(servers: &[RedisServer]) -> LockManager {
    let members = servers.iter().map(|server| {
        let options = RedisOptions::parse(&server.url("restart_quarantine=off&timeout_millis=500"));
        RedisStore::member(options.expect("a URL")).expect("a member")
    });
    LockManager::builder(Quorum::new(members).expect("members"))
        .settings(Settings::default())
        .build()
        .expect("a manager")
}

/// Holds in a second, of all managers.
#[allow(
    clippy::disallowed_methods,
    reason = "a rate is a count over real time"
)]
fn rate(managers: &[LockManager]) -> f64 {
    let (holds, is_over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let began = Instant::now();
    for locks in managers {
        let (locks, holds, is_over) = (locks.clone(), Arc::clone(&holds), Arc::clone(&is_over));
        runtime.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(guard) = locks.lock("contended").acquire().await {
                    holds.fetch_add(1, Ordering::Relaxed);
                    drop(guard.release().await);
                }
            }
        });
    }
    std::thread::sleep(SPAN);
    let rate = holds.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    let tasks = runtime.metrics().num_alive_tasks();
    println!("    {tasks} tasks are alive after {SPAN:?}");
    runtime.shutdown_timeout(Duration::from_secs(2));
    rate
}
