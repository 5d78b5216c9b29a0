//! A crowd on one key of a quorum: everybody is served, each costs the servers some commands, and
//! nobody connects again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{LockManager, Settings};

use crate::quorum::quorum;
use crate::server::RedisServer;

fn number(server: &RedisServer, name: &str) -> u64 {
    let info = server.cli(&["INFO", "stats"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

/// Commands and connections that the servers had.
fn totals(servers: &[RedisServer]) -> [u64; 2] {
    ["total_commands_processed:", "total_connections_received:"]
        .map(|name| servers.iter().map(|server| number(server, name)).sum())
}

/// The commands and connections that a crowd of four managers costs, from when its first holder
/// leaves.
async fn cost(crowd: usize, handoff_count: u32) -> [u64; 2] {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let mut settings = Settings::default();
    settings.handoff_count = handoff_count;
    // The count decides, however slow the machine is.
    settings.handoff_time = Duration::from_secs(60);
    settings.wait = Duration::from_secs(600);
    let mut managers = Vec::new();
    for number in 0..4 {
        let store = quorum(&servers, "restart_quarantine=off");
        let builder = LockManager::builder(store).settings(settings.clone());
        let locks = builder.build().unwrap();
        // Connected to all.
        let own = locks.lock(format!("own{number}")).acquire().await;
        own.unwrap().release().await.unwrap();
        managers.push(locks);
    }
    let first = managers[0].lock("a").acquire().await.unwrap();
    let inside = Arc::new(AtomicU32::new(0));
    let mut waiting = Vec::new();
    for number in 0..crowd {
        let (locks, inside) = (managers[number % 4].clone(), Arc::clone(&inside));
        waiting.push(tokio::spawn(async move {
            let guard = locks.lock("a").acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        }));
    }
    let before = totals(&servers);
    first.release().await.unwrap();
    for one in waiting {
        one.await.unwrap();
    }
    let after = totals(&servers);
    std::array::from_fn(|which| after[which] - before[which])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_a_crowd_are_served_over_the_same_connections() {
    const CROWD: usize = 300;
    let [commands, connections] = cost(CROWD, Settings::default().handoff_count).await;
    println!("{commands} commands and {connections} connections");
    // Those that a script sends count too, and the looks of this test. Most holds are handed off.
    assert!(commands <= 40 * CROWD as u64, "{commands}");
    // Each manager subscribes over a second one, and each look of this test is one.
    assert!(connections <= 3 * (4 + 2), "{connections}");
    // Each hold is asked for.
    let [commands, connections] = cost(CROWD / 5, 0).await;
    println!("{commands} commands and {connections} connections without handoff");
    assert!(connections <= 3 * (4 + 2), "{connections}");
}
