//! Locks spread over the nodes of a cluster that stays as it is. What changes it is in
//! `cluster_change`.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::redis::{RedisBatch, RedisFence, RedisStore, Written};
use leasehold::run::CommitProof;
use leasehold::store::{Acquired, Fencing, Grant, LockMode, Renewed, Store};
use leasehold::{Cause, ErrorKind, LockManager, RunError, Settings};

use crate::claims::{claim, claim_for, grant, is_busy, key, once, queued, release};
use crate::server::canary::CANARY;
use crate::server::cluster::{RedisCluster, when};
use crate::server::{RedisServer, free_port};

const FRESH: &str = "prefix=app&restart_quarantine=off";

async fn store(cluster: &RedisCluster) -> RedisStore {
    RedisStore::connect(&cluster.url(FRESH)).await.unwrap()
}

async fn manager(cluster: &RedisCluster, ttl: Duration) -> LockManager {
    let mut settings = Settings::default();
    settings.ttl = ttl;
    settings.request_timeout = Duration::from_secs(10);
    let builder = LockManager::builder_for_url(&cluster.url(FRESH), settings).await;
    builder.unwrap().build().unwrap()
}

fn is_extended(renewed: &Renewed) -> bool {
    matches!(renewed, Renewed::Extended(_))
}

/// The answers of one call that every node answered in time. A node that is late by a tenth of a
/// second is not waited for, and a busy machine holds one up now and then, but not each time.
pub(crate) async fn on_time(mut renew: impl AsyncFnMut() -> Vec<Renewed>) -> Vec<Renewed> {
    let mut renewed = Vec::new();
    for _ in 0..20 {
        renewed = renew().await;
        if !renewed.iter().any(|one| matches!(one, Renewed::Unknown(_))) {
            break;
        }
    }
    renewed
}

#[tokio::test]
async fn a_lock_is_at_the_node_that_has_its_slot() {
    let cluster = RedisCluster::of_masters(3);
    let (ours, theirs) = (store(&cluster).await, store(&cluster).await);
    for (index, node) in cluster.masters().iter().enumerate() {
        let name = cluster.name_at(index);
        let held = grant(&ours, &claim(&name)).await;
        let there = node.cli(&["GET", &format!("app:{name}")]);
        assert!(there.starts_with(&held.claim.owner.expose()), "{there}");
        assert!(is_busy(&theirs, &once(claim(&name))).await);
        let record = theirs.inspect(&held.claim.key).await.unwrap();
        assert_eq!(record.and_then(|record| record.token), Some(held.token));
        let renewed = ours.renew(std::slice::from_ref(&held)).await;
        assert!(is_extended(&renewed[0]), "{renewed:?}");
        release(&ours, &held).await;
        let next = grant(&theirs, &claim(&name)).await;
        assert!(next.token > held.token);
    }
}

#[tokio::test]
async fn with_the_quarantine_each_slot_has_a_marker_that_clients_agree_on() {
    let cluster = RedisCluster::of_masters(3);
    let query = "prefix=app&max_ttl=300ms";
    let ours = RedisStore::connect(&cluster.url(query)).await.unwrap();
    let short = Duration::from_millis(200);
    for (index, node) in cluster.masters().iter().enumerate() {
        let ours_here = claim_for(&cluster.name_at(index), short);
        // A server that was just started begins with it.
        when(async || {
            ours.acquire(&ours_here)
                .await
                .is_ok_and(|one| matches!(one, Acquired::Granted(_)))
        })
        .await;
        let slot = cluster.slot(&format!("app:{}", ours_here.key)).to_string();
        let names = node.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        let marker = names
            .lines()
            .find(|name| name.ends_with("}:leasehold:marker"));
        let run = node.cli(&["GET", marker.unwrap()]);
        assert_eq!(run.split(' ').nth(1), Some(&*node.incarnation()));
        // To `list` it is no lock.
        let listed = ours.list("").await.unwrap();
        assert!(
            listed
                .iter()
                .all(|one| !one.key.as_str().contains("marker"))
        );
    }
    let other = RedisStore::connect(&cluster.url("prefix=app&max_ttl=400ms"))
        .await
        .unwrap();
    let error = other
        .acquire(&claim_for(&cluster.name_at(0), short))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("theirs=300ms"), "{error}");
}

#[tokio::test]
async fn locks_of_all_nodes_are_listed_in_the_order_of_their_keys() {
    let cluster = RedisCluster::of_masters(3);
    let store = store(&cluster).await;
    let mut names: Vec<_> = (0..40).map(|number| format!("jobs/{number:02}")).collect();
    for name in &names {
        let _held = grant(&store, &claim(name)).await;
    }
    let _other = grant(&store, &claim("other")).await;
    let listed = store.list("jobs/").await.unwrap();
    names.sort();
    let keys: Vec<_> = listed.iter().map(|one| one.key.to_string()).collect();
    assert_eq!(keys, names);
}

#[tokio::test]
async fn three_hundred_grants_are_renewed_by_one_request_to_each_node() {
    let cluster = RedisCluster::of_masters(3);
    let store = store(&cluster).await;
    let mut held: Vec<Grant> = Vec::new();
    for number in 0..290 {
        held.push(grant(&store, &claim(&format!("held/{number}"))).await);
    }
    for number in 0..10 {
        held.push(grant(&store, &queued(&format!("read/{number}"), LockMode::Read)).await);
    }
    // The connections for heartbeats are made, and the script is loaded.
    let renewed = on_time(async || store.renew(&held).await).await;
    assert!(renewed.iter().all(is_extended));

    let reads = |node: &RedisServer| {
        let stats = node.cli(&["INFO", "stats"]);
        let reported = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_reads_processed:"));
        reported
            .and_then(|reads| reads.trim().parse::<u64>().ok())
            .unwrap()
    };
    let look = || -> Vec<u64> { cluster.masters().iter().map(reads).collect() };
    let mut looks = [[0; 3]; 3];
    let renewed = on_time(async || {
        let (before, asked) = (look(), look());
        let renewed = store.renew(&held).await;
        let after = look();
        looks = [0, 1, 2].map(|node| [before[node], asked[node], after[node]]);
        renewed
    });
    assert!(renewed.await.iter().all(is_extended));
    for (index, reads) in looks.into_iter().enumerate() {
        let [before, asked, after] = reads;
        let by_renewing = after - asked - (asked - before);
        // About 100 grants in as many slots, 200 bytes each: a server reads 16 KiB at a time.
        assert!(
            (1..=8).contains(&by_renewing),
            "{by_renewing} reads at node {index}"
        );
    }
}

#[tokio::test]
async fn scripts_that_were_flushed_are_loaded_again_within_a_renewal() {
    let cluster = RedisCluster::of_masters(3);
    let store = store(&cluster).await;
    let mut held: Vec<Grant> = Vec::new();
    for number in 0..30 {
        held.push(grant(&store, &claim(&format!("held/{number}"))).await);
    }
    let flush = || {
        for node in cluster.masters() {
            assert_eq!(node.cli(&["SCRIPT", "FLUSH"]), "OK");
        }
    };
    let renewed = on_time(async || {
        flush();
        store.renew(&held).await
    });
    assert!(renewed.await.iter().all(is_extended));
    flush();
    for one in &held {
        release(&store, one).await;
    }
}

#[tokio::test]
async fn one_manager_holds_three_hundred_locks_of_three_nodes_and_loses_none() {
    let cluster = RedisCluster::of_masters(3);
    let locks = manager(&cluster, Duration::from_secs(10)).await;
    let mut guards = Vec::new();
    for number in 0..300 {
        guards.push(
            locks
                .lock(format!("held/{number:03}"))
                .acquire()
                .await
                .unwrap(),
        );
    }
    // Real time, since the servers count by their own: two TTLs and a half, each longer than a busy
    // machine stands still.
    Clock::system()
        .unwrap()
        .sleep(Duration::from_secs(25))
        .await;
    let lost = guards
        .iter()
        .filter(|guard| !guard.lease().is_live())
        .count();
    assert_eq!(lost, 0, "of 300 holds; {:?}", locks.health());
    locks.shutdown().await;
    for node in cluster.masters() {
        assert_eq!(node.cli(&["KEYS", "app:held/*"]), "");
    }
}

#[tokio::test]
async fn a_release_wakes_whoever_waits_at_any_node() {
    let cluster = RedisCluster::of_masters(3);
    let (ours, theirs) = (store(&cluster).await, store(&cluster).await);
    for index in 0..3 {
        let name = cluster.name_at(index);
        let held = grant(&ours, &claim(&name)).await;
        let next = claim(&name);
        let hint = theirs.subscribe(&next).await.unwrap();
        assert!(is_busy(&theirs, &next).await);
        release(&ours, &held).await;
        let given = hint.await.expect("the message is the grant");
        assert!(given.token > held.token);
        // What one node publishes, the others forward.
        let hint = theirs.subscribe(&next).await.unwrap();
        let elsewhere = &cluster.nodes[(index + 1) % 3];
        let owner = next.owner.expose().to_string();
        let channel = format!("app:{{leasehold}}:wake:{}", &owner[24..]);
        elsewhere.cli(&["PUBLISH", &channel, &format!("{owner} gap 0")]);
        assert_eq!(hint.await, None);
    }
}

#[tokio::test]
async fn a_withdrawn_claim_is_never_granted() {
    let cluster = RedisCluster::of_masters(3);
    let store = store(&cluster).await;
    for index in 0..3 {
        let ours = claim(&cluster.name_at(index));
        store.withdraw(&ours).await.unwrap();
        let error = store.acquire(&ours).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn a_silent_node_costs_its_own_locks_only() {
    let cluster = RedisCluster::of_masters(3);
    let ttl = Duration::from_secs(8);
    let locks = manager(&cluster, ttl).await;
    // So many that what falls due together is of all nodes.
    let names: Vec<_> = (0..3).map(|index| cluster.names_at(index, 41)).collect();
    let (mut silent, mut others) = (Vec::new(), Vec::new());
    for number in 0..40 {
        silent.push(
            locks
                .lock(names[0][number].as_str())
                .acquire()
                .await
                .unwrap(),
        );
        for names in &names[1..] {
            others.push(locks.lock(names[number].as_str()).acquire().await.unwrap());
        }
    }
    cluster.nodes[0].pause();
    for guard in &silent {
        guard.lost().await;
    }
    // Real time, since the servers count by their own: one more TTL.
    Clock::system().unwrap().sleep(ttl).await;
    for guard in &others {
        assert!(guard.lease().is_live(), "{:?}", locks.health());
    }
    // And locks that were not held before are granted.
    for names in &names[1..] {
        let guard = locks.lock(names[40].as_str()).acquire().await.unwrap();
        drop(guard.release().await);
    }
    cluster.nodes[0].resume();
}

#[tokio::test]
async fn a_node_that_is_down_leaves_the_others_to_whoever_connects_then() {
    let mut cluster = RedisCluster::of_masters(3);
    let names: Vec<_> = (0..3).map(|index| cluster.name_at(index)).collect();
    cluster.nodes[0].kill();
    let url = cluster.url(FRESH).replace(
        "redis+cluster://",
        &format!("redis+cluster://127.0.0.1:{},", free_port()),
    );
    let store = RedisStore::connect(&url).await.unwrap();
    for name in &names[1..] {
        let _held = grant(&store, &claim(name)).await;
    }
    let error = store.acquire(&claim(&names[0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_shown() {
    let cluster = RedisCluster::of_masters(3);
    for node in cluster.masters() {
        assert_eq!(node.cli(&["CONFIG", "SET", "requirepass", CANARY]), "OK");
    }
    let url = |who: &str| cluster.url(FRESH).replace("//", &format!("//{who}@"));
    for who in [format!("me:{CANARY}-not"), format!(":{CANARY}-not")] {
        let error = RedisStore::connect(&url(&who)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error} {error:?}").contains(CANARY));
    }
    let store = RedisStore::connect(&url(&format!(":{CANARY}")))
        .await
        .unwrap();
    let _held = grant(&store, &claim("a")).await;
    assert!(!format!("{store:?}").contains(CANARY));
}

#[tokio::test]
async fn a_user_that_is_limited_to_our_prefix_can_do_all_we_need() {
    let cluster = RedisCluster::of_masters(3);
    let password = format!(">{CANARY}");
    for node in cluster.masters() {
        let rules = [
            "resetchannels",
            "~app:*",
            "&app:*",
            "+@all",
            "-@admin",
            "-@dangerous",
            "+cluster|slots",
            "+info",
        ];
        node.cli(&[&["ACL", "SETUSER", "me", "on", &password][..], &rules].concat());
    }
    let url = cluster.url(FRESH).replace("//", &format!("//me:{CANARY}@"));
    let store = RedisStore::connect(&url).await.unwrap();
    for index in 0..3 {
        let ours = claim(&cluster.name_at(index));
        let held = grant(&store, &ours).await;
        let next = claim(&cluster.name_at(index));
        let hint = store.subscribe(&next).await.unwrap();
        assert!(is_busy(&store, &next).await);
        assert!(is_extended(
            &store.renew(std::slice::from_ref(&held)).await[0]
        ));
        assert_eq!(store.list("").await.unwrap().len(), 1);
        release(&store, &held).await;
        hint.await;
        store.withdraw(&next).await.unwrap();
    }

    // Another node could take the place of one that hides its run, and nobody would see it.
    for node in cluster.masters() {
        node.cli(&["ACL", "SETUSER", "me", "-info"]);
    }
    let _held = grant(&RedisStore::connect(&url).await.unwrap(), &claim("a")).await;
    let store = RedisStore::connect(&url.replace(FRESH, "prefix=app"))
        .await
        .unwrap();
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("+info"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_no_node_of_a_cluster_is_refused_by_name() {
    let server = RedisServer::start();
    let url = server.url(FRESH).replace("redis://", "redis+cluster://");
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("use redis://"), "{error}");

    let cluster = RedisCluster::of_masters(3);
    let alone = RedisStore::connect(&cluster.nodes[0].url(FRESH))
        .await
        .unwrap();
    let error = alone
        .acquire(&claim(&cluster.name_at(1)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[tokio::test]
async fn tokens_promise_to_grow_where_nothing_is_copied_or_copies_are_waited_for() {
    let cluster = RedisCluster::of_masters(3);
    assert_eq!(
        store(&cluster).await.capability().fencing,
        Fencing::Monotonic
    );
    drop(cluster);
    let cluster = RedisCluster::with_replicas(3);
    assert_eq!(store(&cluster).await.capability().fencing, Fencing::None);
    let query = format!("{FRESH}&replicas=1&replica_wait=10s");
    let waiting = RedisStore::connect(&cluster.url(&query)).await.unwrap();
    assert_eq!(waiting.capability().fencing, Fencing::Monotonic);
    for index in 0..3 {
        let name = cluster.name_at(index);
        let held = grant(&waiting, &claim(&name)).await;
        release(&waiting, &held).await;
    }
    // With its replica stopped a master grants nothing, takes back what it granted, and renews
    // nothing.
    let names = [cluster.names_at(0, 2)[1].clone(), cluster.name_at(1)];
    let mut held = Vec::new();
    for name in &names {
        held.push(grant(&waiting, &claim(name)).await);
    }
    let renewed = on_time(async || waiting.renew(&held).await).await;
    assert!(renewed.iter().all(is_extended), "{renewed:?}");
    cluster.nodes[3].pause();
    let query = format!("{FRESH}&replicas=1&replica_wait=500ms");
    let impatient = RedisStore::connect(&cluster.url(&query)).await.unwrap();
    let renewed = on_time(async || {
        let mut renewed = impatient.renew(&held).await;
        let unconfirmed = renewed.remove(0);
        assert!(matches!(unconfirmed, Renewed::Unknown(_)));
        renewed
    });
    assert!(renewed.await.iter().all(is_extended));
    release(&waiting, &held[1]).await;
    let name = cluster.name_at(0);
    let error = impatient.acquire(&once(claim(&name))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("confirmed=0"), "{error}");
    assert_eq!(waiting.inspect(&key(&name)).await.unwrap(), None);
    let _other = grant(&waiting, &claim(&cluster.name_at(1))).await;
    cluster.nodes[3].resume();
}

#[tokio::test]
async fn a_fence_is_beside_its_lock_at_every_node() {
    let cluster = RedisCluster::of_masters(3);
    let locks = LockManager::connect(&cluster.url(FRESH)).await.unwrap();
    let fence = RedisFence::connect(&cluster.url(FRESH)).await.unwrap();
    for (index, node) in cluster.masters().iter().enumerate() {
        let name = cluster.name_at(index);
        let balance = format!("{{app:{name}}}:balance");
        let lock = locks.lock(name.as_str()).fence(fence.clone());
        let committing = fence.clone();
        let batch = RedisBatch::new().set(balance.as_str(), "1");
        let done = lock.guarded_async(async |tx| {
            tx.commit_with(move |permit| committing.apply(permit, batch));
            Ok((tx.token(), tx.txn_id()?))
        });
        let done = done.await.unwrap();
        assert_eq!(done.proof, CommitProof::Fenced);
        assert_eq!(node.cli(&["GET", &balance]), "1");

        // A zombie: the next holder has raised the fence.
        let (token, txn_id) = done.value;
        let key = key(&name);
        let guard = lock.acquire().await.unwrap();
        let late = RedisBatch::new().set(balance.as_str(), "late");
        let written = fence.write(&key, token, txn_id, "late", &late);
        let seen = guard.token();
        assert_eq!(written.await.unwrap(), Written::Fenced { seen });
        assert_eq!(node.cli(&["GET", &balance]), "1");

        let elsewhere = RedisBatch::new()
            .set(balance.as_str(), "2")
            .set("elsewhere", "2");
        let written = fence.write(&key, seen, txn_id, "elsewhere", &elsewhere);
        let error = written.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(
            error.to_string().contains(&format!("{{app:{name}}}")),
            "{error}"
        );
        assert_eq!(node.cli(&["GET", &balance]), "1");
        drop(guard.release().await);
    }
}

#[tokio::test]
async fn a_commit_under_locks_in_different_slots_is_refused_and_changes_nothing() {
    let cluster = RedisCluster::of_masters(3);
    let fence = RedisFence::connect(&cluster.url(FRESH)).await.unwrap();
    let locks = manager(&cluster, Duration::from_secs(10)).await;
    let names = [cluster.name_at(0), cluster.name_at(1)];
    let both = locks.lock_all(names.iter().map(String::as_str));
    let guard = both.fence(fence.clone()).acquire().await.unwrap();
    let executor = guard.executor();
    for (node, name) in cluster.masters().iter().zip(&names) {
        // Wherever the data are.
        let balance = format!("{{app:{name}}}:balance");
        let (fence, batch) = (fence.clone(), RedisBatch::new().set(balance.as_str(), "1"));
        let run = executor.guarded_async(async move |tx| {
            tx.commit_with(move |permit| fence.apply(permit, batch));
            Ok(())
        });
        match run.await {
            Err(RunError::RolledBack {
                cause: Cause::NotApplied(why),
                ..
            }) => {
                let why = why.to_string();
                assert!(why.contains("different slots of the cluster"), "{why}");
                assert!(names.iter().all(|name| why.contains(name)), "{why}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(node.cli(&["EXISTS", &balance]), "0");
    }
    assert!(
        guard.remaining() > Duration::ZERO,
        "the locks are still held"
    );
}

#[tokio::test]
async fn a_fence_in_a_cluster_with_replicas_is_refused() {
    let cluster = RedisCluster::with_replicas(3);
    let error = RedisFence::connect(&cluster.url(FRESH)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let cluster = RedisCluster::of_masters(3);
    let store = store(&cluster).await;
    let held = grant(&store, &claim("a")).await;
    store.close().await.unwrap();
    let error = store.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(&renewed[0], Renewed::Unknown(error) if error.kind() == ErrorKind::Closed));
}
