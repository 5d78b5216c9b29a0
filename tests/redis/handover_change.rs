//! Handovers in a cluster that changes: while a slot moves, and across a fail-over.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Claim, Grant, LockMode, Store};

use crate::claims::{claim, claim_for, grant, is_busy, queued, release};
use crate::server::breathe;
use crate::server::cluster::RedisCluster;

const FRESH: &str = "prefix=app&restart_quarantine=off";

/// Asks until it is granted. What is refused on the way had no effect.
async fn served(store: &RedisStore, claim: &Claim) -> Grant {
    loop {
        match store.acquire(claim).await {
            Ok(Acquired::Granted(held)) => return held,
            _ => breathe().await,
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_handed_over_while_its_slot_moves_keeps_its_queue() {
    let cluster = RedisCluster::of_masters(3);
    let store = RedisStore::connect(&cluster.url(FRESH)).await.unwrap();
    // What has moved when the hold is released: nothing, the lock, what is beside it, or all.
    let moves = [&[][..], &["lock"], &["beside"], &["lock", "beside"]];
    for (round, moved) in moves.into_iter().enumerate() {
        let (from, to) = (round % 3, (round + 1) % 3);
        let name = cluster.names_at(from, round + 1)[round].clone();
        let lock = format!("app:{name}");
        let slot = cluster.slot(&lock);
        let held = grant(&store, &claim(&name)).await;
        let (first, last) = (queued(&name, LockMode::Write), claim(&name));
        assert!(is_busy(&store, &first).await && is_busy(&store, &last).await);
        cluster.begin_move(slot, from, to);
        for what in moved {
            let beside = ["queue", "line", "places"].map(|what| format!("{lock}{{{lock}}}:{what}"));
            match *what {
                "lock" => cluster.carry(&[&lock], from, to),
                _ => cluster.carry(&beside.each_ref().map(String::as_str), from, to),
            }
        }
        release(&store, &held).await;
        cluster.end_move(slot, from, to);
        let first = served(&store, &first).await;
        assert!(first.token > held.token, "{moved:?}");
        assert!(is_busy(&store, &last).await, "{moved:?}");
        release(&store, &first).await;
        let last = served(&store, &last).await;
        assert!(last.token > first.token, "{moved:?}");
        release(&store, &last).await;
        let left = cluster.nodes[to].cli(&["EXISTS", &lock]);
        assert_eq!(left, "0", "{moved:?}");
    }
}

/// A claim whose place is kept for as long as the test takes.
fn patient(name: &str, ttl: Duration) -> Claim {
    let mut waits = claim_for(name, ttl);
    waits.place_ttl = Duration::from_secs(600);
    waits
}

#[tokio::test]
async fn all_that_wait_are_served_one_at_a_time_after_a_failover_in_a_handover() {
    let ttl = Duration::from_secs(2);
    let mut cluster = RedisCluster::with_replicas(3);
    let store = RedisStore::connect(&cluster.url("prefix=app&max_ttl=2s"))
        .await
        .unwrap();
    let name = cluster.name_at(0);
    // The nodes are young: nothing is granted before that time is over.
    let held = served(&store, &claim_for(&name, ttl)).await;
    let waiting = [(); 3].map(|()| patient(&name, ttl));
    for claim in &waiting {
        assert!(is_busy(&store, claim).await);
    }
    drop(store.release(&held).await);
    assert_eq!(cluster.nodes[0].cli(&["WAIT", "1", "10000"]), "1");
    let promoted = cluster.fail_over(0);
    let inside = AtomicU32::new(0);
    let turn = async |claim: &Claim| {
        let one = served(&store, claim).await;
        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two inside");
        breathe().await;
        assert_eq!(inside.fetch_sub(1, SeqCst), 1);
        drop(store.release(&one).await);
        assert!(one.token > held.token);
        one.token
    };
    let [first, second, third] = &waiting;
    let tokens = futures_util::join!(turn(first), turn(second), turn(third));
    assert!(tokens.0 != tokens.1 && tokens.1 != tokens.2 && tokens.0 != tokens.2);
    let left = cluster.nodes[promoted].cli(&["EXISTS", &format!("app:{name}")]);
    assert_eq!(left, "0");
}
