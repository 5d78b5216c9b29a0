//! A cluster that changes under the locks: slots that move, masters that die, data that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Grant, LockMode, Released, Renewed, Store};
use leasehold::{ErrorKind, LockManager};

use crate::claims::{claim, claim_for, grant, is_busy, once, queued, release};
use crate::cluster::on_time;
use crate::other_holder::{OtherHolder, age, wait_for};
use crate::server::breathe;
use crate::server::cluster::{RedisCluster, when};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const SHORT: Duration = Duration::from_millis(200);

async fn store(cluster: &RedisCluster, query: &str) -> RedisStore {
    RedisStore::connect(&cluster.url(query)).await.unwrap()
}

async fn renewed(store: &RedisStore, held: &Grant) -> Renewed {
    store.renew(std::slice::from_ref(held)).await.remove(0)
}

fn lock(name: &str) -> String {
    format!("app:{name}")
}

/// A real pause: a node that is slow and not silent.
#[tokio::test]
async fn a_node_that_is_slower_than_the_others_renews_what_it_has() {
    let cluster = RedisCluster::of_masters(3);
    let store = store(&cluster, FRESH).await;
    let mut held = Vec::new();
    for node in 0..2 {
        let claim = claim_for(&cluster.name_at(node), Duration::from_secs(10));
        held.push(grant(&store, &claim).await);
    }
    let clock = Clock::system().unwrap();
    let slowly = async || {
        cluster.nodes[1].pause();
        let resume = async {
            clock.sleep(Duration::from_millis(130)).await;
            cluster.nodes[1].resume();
        };
        let (reported, ()) = tokio::join!(store.renew(&held), resume);
        reported
            .iter()
            .all(|one| matches!(one, Renewed::Extended(_)))
    };
    // A busy machine may be slower still, now and then.
    for _ in 0..50 {
        if slowly().await {
            return;
        }
    }
    panic!("a node that answers after 130 ms never counts");
}

#[tokio::test]
async fn a_slot_that_moved_takes_its_holds_along() {
    let cluster = RedisCluster::of_masters(3);
    let (ours, theirs) = (store(&cluster, FRESH).await, store(&cluster, FRESH).await);
    let name = cluster.name_at(0);
    let slot = cluster.slot(&lock(&name));
    let held = grant(&ours, &claim(&name)).await;
    let reading = grant(&ours, &queued(&cluster.names_at(0, 2)[1], LockMode::Read)).await;
    let reading_slot = cluster.slot(&lock(reading.claim.key.as_str()));
    for slot in [slot, reading_slot] {
        cluster.begin_move(slot, 0, 1);
        cluster.end_move(slot, 0, 1);
    }
    // Both learn it from the refusal of the old node.
    assert!(is_busy(&theirs, &once(claim(&name))).await);
    for one in [&held, &reading] {
        let reported = renewed(&ours, one).await;
        assert!(matches!(reported, Renewed::Extended(_)), "{reported:?}");
    }
    assert_eq!(cluster.nodes[1].cli(&["EXISTS", &lock(&name)]), "1");
    release(&ours, &held).await;
    release(&ours, &reading).await;
    let next = grant(&theirs, &claim(&name)).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn a_hold_whose_slot_moved_is_renewed_only_when_the_replicas_of_its_new_node_have_it() {
    let cluster = RedisCluster::with_replicas(3);
    let waiting = async |wait: &str| {
        let query = format!("{FRESH}&replicas=1&replica_wait={wait}");
        store(&cluster, &query).await
    };
    let (impatient, store) = (waiting("500ms").await, waiting("10s").await);
    let name = cluster.name_at(0);
    let slot = cluster.slot(&lock(&name));
    let held = grant(&store, &claim(&name)).await;
    cluster.begin_move(slot, 0, 1);
    let reported = renewed(&store, &held).await;
    assert!(matches!(reported, Renewed::Extended(_)), "{reported:?}");
    cluster.end_move(slot, 0, 1);
    cluster.nodes[4].pause();
    // Sent on by the old node.
    let reported = renewed(&impatient, &held).await;
    assert!(matches!(reported, Renewed::Unknown(_)), "{reported:?}");
    cluster.nodes[4].resume();
    while !matches!(renewed(&store, &held).await, Renewed::Extended(_)) {
        breathe().await;
    }
}

#[tokio::test]
async fn a_slot_that_moves_renews_and_releases_what_is_held_and_grants_nothing() {
    let cluster = RedisCluster::of_masters(3);
    let (ours, theirs) = (store(&cluster, FRESH).await, store(&cluster, FRESH).await);
    let name = cluster.name_at(0);
    let slot = cluster.slot(&lock(&name));
    let held = grant(&ours, &claim(&name)).await;
    cluster.begin_move(slot, 0, 1);
    for is_carried in [false, true] {
        if is_carried {
            cluster.carry(&[&lock(&name)], 0, 1);
        }
        let reported = renewed(&ours, &held).await;
        assert!(matches!(reported, Renewed::Extended(_)), "{reported:?}");
        let error = theirs.acquire(&once(claim(&name))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    release(&ours, &held).await;
    let error = theirs.acquire(&once(claim(&name))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // The locks of other slots of both nodes are as they were.
    for node in 0..2 {
        let _other = grant(&theirs, &claim(&cluster.names_at(node, 2)[1])).await;
    }
    cluster.end_move(slot, 0, 1);
    let _next = grant(&theirs, &claim(&name)).await;
}

#[tokio::test]
async fn an_attempt_waits_a_moment_for_a_slot_that_is_on_its_way() {
    let cluster = RedisCluster::of_masters(2);
    let ours = store(&cluster, FRESH).await;
    let name = cluster.name_at(0);
    let slot = cluster.slot(&lock(&name));
    let mut granted = 0;
    // However slow the machine is: one of so many arrives in time.
    for round in 0..20 {
        let (from, to) = (round % 2, (round + 1) % 2);
        cluster.begin_move(slot, from, to);
        // Its first answer comes while the slot is on its way.
        let ours_now = claim(&name);
        let mut attempt = std::pin::pin!(ours.acquire(&ours_now));
        let mut early = None;
        for _ in 0..3 {
            breathe().await;
            if let Poll::Ready(answer) = futures_util::poll!(&mut attempt) {
                early = Some(answer);
                break;
            }
        }
        cluster.end_move(slot, from, to);
        if let Some(answer) = early {
            assert!(answer.is_err(), "granted on the way: {answer:?}");
        } else if let Ok(Acquired::Granted(held)) = attempt.await {
            granted += 1;
            release(&ours, &held).await;
        }
    }
    assert!(granted > 0);
}

#[tokio::test]
async fn two_locks_of_a_slot_of_which_one_has_moved_are_both_renewed() {
    let cluster = RedisCluster::of_masters(3);
    let ours = store(&cluster, FRESH).await;
    let (first, second) = two_names_of_one_slot(&cluster);
    let slot = cluster.slot(&lock(&first));
    let held = [
        grant(&ours, &claim(&first)).await,
        grant(&ours, &claim(&second)).await,
    ];
    let from = cluster.home(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    cluster.carry(&[&lock(&second)], from, to);
    let reported = on_time(async || ours.renew(&held).await).await;
    assert!(
        matches!(reported[..], [Renewed::Extended(_), Renewed::Extended(_)]),
        "{reported:?}"
    );
}

#[tokio::test]
async fn a_reader_whose_keys_are_in_two_places_is_not_lost() {
    let cluster = RedisCluster::of_masters(3);
    let ours = store(&cluster, FRESH).await;
    // Whichever of its keys goes first.
    for (name, is_lock_first) in [(cluster.name_at(0), false), (cluster.name_at(1), true)] {
        let slot = cluster.slot(&lock(&name));
        let (from, to) = if is_lock_first { (1, 2) } else { (0, 1) };
        let mut keys = [format!("app:{name}{{app:{name}}}:readers"), lock(&name)];
        if is_lock_first {
            keys.reverse();
        }
        let held = grant(&ours, &queued(&name, LockMode::Read)).await;
        cluster.begin_move(slot, from, to);
        cluster.carry(&[&keys[0]], from, to);
        let reported = renewed(&ours, &held).await;
        assert!(
            matches!(reported, Renewed::Unknown(_)),
            "{keys:?}: {reported:?}"
        );
        cluster.carry(&[&keys[1]], from, to);
        let reported = renewed(&ours, &held).await;
        assert!(
            matches!(reported, Renewed::Extended(_)),
            "{keys:?}: {reported:?}"
        );
        cluster.end_move(slot, from, to);
        release(&ours, &held).await;
    }
}

#[tokio::test]
async fn a_silent_node_that_takes_a_slot_in_costs_what_it_took_only() {
    let cluster = RedisCluster::of_masters(3);
    let ours = store(&cluster, FRESH).await;
    let here = cluster.names_at(0, 4);
    let mut held = Vec::new();
    for name in here.iter().chain(&cluster.names_at(2, 3)) {
        held.push(grant(&ours, &claim(name)).await);
    }
    // The connections for heartbeats are made.
    let reported = on_time(async || ours.renew(&held).await).await;
    let is_extended = |one: &Renewed| matches!(one, Renewed::Extended(_));
    assert!(reported.iter().all(is_extended), "{reported:?}");
    cluster.begin_move(cluster.slot(&lock(&here[0])), 0, 1);
    cluster.carry(&[&lock(&here[0])], 0, 1);
    cluster.nodes[1].pause();
    let reported = on_time(async || {
        let mut reported = ours.renew(&held).await;
        let taken_in = reported.remove(0);
        assert!(matches!(taken_in, Renewed::Unknown(_)), "{taken_in:?}");
        reported
    });
    let reported = reported.await;
    cluster.nodes[1].resume();
    // The node that sends it on answered for its other locks at once, and so did the third node.
    assert!(reported.iter().all(is_extended), "{reported:?}");
}

/// Found by trying: no key may have a hash tag.
fn two_names_of_one_slot(cluster: &RedisCluster) -> (String, String) {
    let mut seen = std::collections::HashMap::new();
    for number in 0.. {
        let name = format!("n{number}");
        let slot = cluster.slot(&lock(&name));
        if let Some(other) = seen.insert(slot, name.clone()) {
            return (other, name);
        }
    }
    unreachable!("there are fewer slots than numbers")
}

#[tokio::test]
async fn nobody_gets_in_between_while_a_held_lock_moves_to_and_fro() {
    let cluster = RedisCluster::of_masters(2);
    let locks = LockManager::connect(&cluster.url(FRESH)).await.unwrap();
    let theirs = store(&cluster, FRESH).await;
    let name = cluster.name_at(0);
    let slot = cluster.slot(&lock(&name));
    let guard = locks.lock(name.as_str()).acquire().await.unwrap();
    for round in 0..20 {
        let (from, to) = (round % 2, (round + 1) % 2);
        cluster.begin_move(slot, from, to);
        assert!(theirs.acquire(&once(claim(&name))).await.is_err());
        cluster.end_move(slot, from, to);
        assert!(is_busy(&theirs, &once(claim(&name))).await);
    }
    assert!(guard.lease().is_live());
    drop(guard.release().await);
    let _next = grant(&theirs, &claim(&name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_take_turns_one_at_a_time_while_the_lock_moves_from_node_to_node() {
    let cluster = RedisCluster::of_masters(3);
    let name = cluster.name_at(0);
    let slot = cluster.slot(&lock(&name));
    let inside = Arc::new(AtomicU32::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..2 {
        let locks = LockManager::connect(&cluster.url(FRESH)).await.unwrap();
        for _ in 0..3 {
            let lock = locks.lock(name.as_str());
            let (inside, is_over) = (Arc::clone(&inside), Arc::clone(&is_over));
            callers.push(tokio::spawn(async move {
                let (mut last, mut turns) = (0, 0_u32);
                while !is_over.load(Ordering::SeqCst) {
                    // Refused while the slot is on its way.
                    let Ok(guard) = lock.acquire().await else {
                        breathe().await;
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    tokio::task::yield_now().await;
                    assert!(guard.token().number() >= last, "a token went back");
                    last = guard.token().number();
                    turns += 1;
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    drop(guard.release().await);
                }
                turns
            }));
        }
    }
    for round in 0..15 {
        let (from, to) = (round % 3, (round + 1) % 3);
        cluster.begin_move(slot, from, to);
        breathe().await;
        cluster.end_move(slot, from, to);
        breathe().await;
    }
    is_over.store(true, Ordering::SeqCst);
    let mut turns = 0;
    for caller in callers {
        turns += caller.await.unwrap();
    }
    assert!(turns > 0);
}

/// What a replica that is behind may lack.
#[derive(Clone, Copy, PartialEq)]
enum Lost {
    /// The lock; the marker was written before it.
    Lock,
    /// All that is in the slot.
    All,
}

/// A fail-over that loses keys of the lock's slot; then the next one.
async fn is_next_let_in_after(ttl: Duration, query: &str, lost: Lost) -> bool {
    let mut cluster = RedisCluster::with_replicas(3);
    let name = cluster.name_at(0);
    // Real time, since the servers count their age in whole seconds: its age is nothing that speaks
    // against the new master.
    when(async || cluster.nodes.iter().all(|node| age(node) >= 8)).await;
    let (first, asking) = (store(&cluster, query).await, store(&cluster, query).await);
    let holder = OtherHolder::holding(&first, &name, ttl).await;
    assert_eq!(cluster.nodes[0].cli(&["WAIT", "1", "10000"]), "1");
    let promoted = cluster.fail_over(0);
    let node = &cluster.nodes[promoted];
    let slot = cluster.slot(&lock(&name)).to_string();
    let names = node.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    for key in names.lines() {
        if lost == Lost::All || !key.ends_with(":marker") {
            assert_eq!(node.cli(&["DEL", key]), "1", "{key}");
        }
    }
    assert_eq!(node.cli(&["EXISTS", &lock(&name)]), "0", "it was lost");
    let next = wait_for(&asking, &claim_for(&name, SHORT)).await;
    assert!(next.token > holder.held.token);
    !holder.is_live()
}

#[tokio::test]
async fn after_a_failover_nobody_is_let_in_before_the_last_lease_has_ended() {
    let query = "prefix=app&max_ttl=6s";
    assert!(
        is_next_let_in_after(Duration::from_secs(6), query, Lost::Lock).await,
        "granted to a second one while the first held"
    );
}

#[tokio::test]
async fn a_failover_that_lost_the_marker_too_lets_nobody_in_before_either() {
    let query = "prefix=app&max_ttl=6s";
    assert!(
        is_next_let_in_after(Duration::from_secs(6), query, Lost::All).await,
        "granted to a second one while the first held"
    );
}

#[tokio::test]
async fn long_after_a_failover_a_slot_that_is_used_for_the_first_time_is_granted_at_once() {
    let mut cluster = RedisCluster::with_replicas(3);
    let query = "prefix=app&max_ttl=6s";
    let ours = store(&cluster, query).await;
    let names = cluster.names_at(0, 4);
    let before = wait_for(&ours, &claim_for(&names[0], SHORT)).await;
    assert_eq!(cluster.nodes[0].cli(&["WAIT", "1", "10000"]), "1");
    drop(ours.release(&before).await);
    let promoted = cluster.fail_over(0);
    // The first to meet the new master waits, with a lock that was and with one that was not held
    // before.
    assert!(!matches!(
        ours.acquire(&claim_for(&names[0], SHORT)).await,
        Ok(Acquired::Granted(_))
    ));
    let _next = wait_for(&ours, &claim_for(&names[1], SHORT)).await;
    // That was max_ttl ago: who comes now, and who was there, need not.
    let theirs = store(&cluster, query).await;
    let _first = grant(&ours, &claim_for(&names[2], SHORT)).await;
    let _first = grant(&theirs, &claim_for(&names[3], SHORT)).await;
    // A flush is noticed all the same.
    assert_eq!(cluster.nodes[promoted].cli(&["FLUSHALL"]), "OK");
    for (asking, name) in [(&ours, &names[0]), (&theirs, &names[1])] {
        assert!(is_busy(asking, &once(claim_for(name, SHORT))).await);
    }
}

#[tokio::test]
async fn a_node_that_was_young_when_we_connected_is_not_young_for_ever() {
    let cluster = RedisCluster::of_masters(3);
    let max_ttl = Duration::from_secs(8);
    // What is known of a server's age is as old as the connection.
    let ours = store(&cluster, "prefix=app&max_ttl=8s").await;
    let names = cluster.names_at(0, 4);
    let _first = wait_for(&ours, &claim_for(&names[0], SHORT)).await;
    // Real time: servers grow old by no other.
    Clock::system().unwrap().sleep(max_ttl).await;
    for name in &names[1..] {
        let _next = grant(&ours, &claim_for(name, SHORT)).await;
    }
}

#[tokio::test]
async fn without_the_quarantine_a_failover_lets_two_in() {
    // The tests above can fail: the same, switched off, with a lease that is longer than any
    // fail-over takes.
    let query = "prefix=app&max_ttl=1m&restart_quarantine=off";
    assert!(!is_next_let_in_after(Duration::from_secs(60), query, Lost::Lock).await);
}

#[tokio::test]
async fn holds_that_were_copied_are_renewed_at_the_new_master() {
    let mut cluster = RedisCluster::with_replicas(3);
    let locks = LockManager::connect(&cluster.url(FRESH)).await.unwrap();
    let mut guards = Vec::new();
    for index in 0..3 {
        guards.push(locks.lock(cluster.name_at(index)).acquire().await.unwrap());
    }
    assert_eq!(cluster.nodes[0].cli(&["WAIT", "1", "10000"]), "1");
    let promoted = cluster.fail_over(0);
    cluster.until("it is renewed there", |cluster| {
        let stats = cluster.nodes[promoted].cli(&["INFO", "commandstats"]);
        stats.contains("cmdstat_evalsha") && stats.contains("cmdstat_pexpire")
            || !guards[0].lease().is_live()
    });
    for guard in guards {
        assert!(guard.lease().is_live());
        drop(guard.release().await);
    }
    let stats = cluster.nodes[promoted].cli(&["EXISTS", &lock(&cluster.name_at(0))]);
    assert_eq!(stats, "0", "it was released there");
}

#[tokio::test]
async fn a_node_that_was_flushed_grants_nothing_before_that_lease_ended_and_the_others_go_on() {
    let cluster = RedisCluster::of_masters(3);
    let query = "prefix=app&max_ttl=6s";
    // Real time, since the servers count their age in whole seconds: old enough to be trusted.
    when(async || cluster.masters().iter().all(|node| age(node) >= 8)).await;
    let idle = store(&cluster, query).await;
    let first = store(&cluster, query).await;
    let name = cluster.name_at(0);
    let holder = OtherHolder::holding(&first, &name, Duration::from_secs(6)).await;
    assert_eq!(cluster.nodes[0].cli(&["FLUSHALL"]), "OK");
    // Who never asked this node for anything, and who did.
    for asking in [&idle, &first] {
        assert!(is_busy(asking, &once(claim_for(&name, SHORT))).await);
    }
    // A slot that nobody had used in this run of the node.
    let unused = cluster.names_at(0, 2).remove(1);
    let _unused = grant(&idle, &claim_for(&unused, SHORT)).await;
    for index in 1..3 {
        let _other = grant(&idle, &claim_for(&cluster.name_at(index), SHORT)).await;
    }
    let next = wait_for(&idle, &claim_for(&name, SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_slot_that_was_given_away_without_its_data_grants_nothing_to_who_knew_it() {
    let cluster = RedisCluster::of_masters(3);
    let query = "prefix=app&max_ttl=6s";
    when(async || cluster.masters().iter().all(|node| age(node) >= 8)).await;
    let (first, asking) = (store(&cluster, query).await, store(&cluster, query).await);
    let name = cluster.name_at(0);
    let holder = OtherHolder::holding(&first, &name, Duration::from_secs(6)).await;
    assert!(is_busy(&asking, &once(claim_for(&name, SHORT))).await);
    let slot = cluster.slot(&lock(&name)).to_string();
    let to = cluster.id(1);
    for node in [1, 0] {
        // The node that has the keys drops them when it learns that the slot is another's.
        cluster.nodes[node].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
    for key in cluster.nodes[0]
        .cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])
        .lines()
    {
        cluster.nodes[0].cli(&["DEL", key]);
    }
    when(async || cluster.nodes[1].cli(&["EXISTS", &lock(&name)]) == "0").await;
    let next = wait_for(&asking, &claim_for(&name, SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn what_a_moved_slot_brings_along_is_trusted_by_a_node_that_is_old_enough() {
    let cluster = RedisCluster::of_masters(3);
    let query = "prefix=app&max_ttl=6s";
    when(async || cluster.masters().iter().all(|node| age(node) >= 8)).await;
    let ours = store(&cluster, query).await;
    let name = cluster.name_at(0);
    let held = grant(&ours, &claim_for(&name, Duration::from_secs(6))).await;
    assert!(matches!(ours.release(&held).await, Released::Released));
    let slot = cluster.slot(&lock(&name));
    cluster.begin_move(slot, 0, 1);
    cluster.end_move(slot, 0, 1);
    // The marker names the old node, and nothing is lost: no quarantine.
    let _next = grant(&ours, &claim_for(&name, SHORT)).await;
}
