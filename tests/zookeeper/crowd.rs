//! Many claims of one process for one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::zookeeper::{Server, store, until};
use leasehold::{LockManager, Settings};

const CROWD: u64 = 400;

/// A number that the server counts.
fn counted(server: &Server, name: &str) -> u64 {
    let all = server.ask("mntr").unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_a_crowd_are_served_and_they_share_the_lists_of_it() {
    let server = Server::start();
    let mut settings = Settings::default();
    settings.request_timeout = Duration::from_secs(10);
    settings.wait = Duration::from_secs(600);
    let builder = LockManager::builder(store(&server, "/crowd").await).settings(settings);
    let locks = builder.build().unwrap();
    let held = locks.lock("k").acquire().await.unwrap();
    let before = counted(&server, "zk_packets_received");
    let nodes = counted(&server, "zk_ephemerals_count");
    let inside = Arc::new(AtomicU32::new(0));
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        crowd.push(tokio::spawn(async move {
            let guard = locks.lock("k").fair().acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        }));
    }
    let all_wait = async || counted(&server, "zk_ephemerals_count") == nodes + CROWD;
    until("all of them wait", all_wait).await;
    held.release().await.unwrap();
    for one in crowd {
        one.await.unwrap();
    }
    let sent = counted(&server, "zk_packets_received") - before;
    // Each makes a node, watches the one before it, sends `sync` and lists when that is gone, and
    // deletes its own. Its first two lists are shared.
    assert!(sent < 11 * CROWD / 2, "{sent} requests of {CROWD} claims");
}
