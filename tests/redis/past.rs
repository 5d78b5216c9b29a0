//! Servers that hide what they were: a promoted master that forgot that it was a replica, one that
//! is master again, and one that began with a wrong clock.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Store};

use crate::claims::{claim_for, grant, is_busy, key, once, release};
use crate::other_holder::{OtherHolder, age, uptime, wait_for};
use crate::server::{RedisServer, breathe, free_port, pause};

/// Shorter than the uptime of every server of these tests when it is asked.
const MAX_TTL: Duration = Duration::from_secs(8);
const QUERY: &str = "prefix=app&max_ttl=8s";
const SHORT: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_secs(3_600);

/// After a second without replicas, the server forgets that it was one.
const FORGETS: [&str; 2] = ["--repl-backlog-ttl", "1"];

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(QUERY)).await.unwrap()
}

async fn breathe_for(span: Duration) {
    Clock::system().unwrap().sleep(span).await;
}

fn until_replication_says(server: &RedisServer, what: &str) {
    while !server.cli(&["INFO", "replication"]).contains(what) {
        pause();
    }
}

fn follow(server: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    until_replication_says(server, "master_link_status:up");
}

/// Makes a replica a master, and waits until nothing that it reports shows that it was one.
fn promote(server: &RedisServer) {
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    until_replication_says(server, &format!("master_replid2:{}", "0".repeat(40)));
}

/// A master that has granted, and a replica that has a copy.
async fn pair(arguments: &[&str]) -> [RedisServer; 2] {
    let arguments = [&FORGETS[..], arguments].concat();
    let pair = [(); 2].map(|()| RedisServer::start_with(&arguments));
    let before = wait_for(&store(&pair[0]).await, &claim_for("before", SHORT)).await;
    assert!(before.token.number() > 0);
    follow(&pair[1], &pair[0]);
    while age(&pair[1]) <= MAX_TTL.as_secs() {
        breathe().await;
    }
    pair
}

async fn nobody_is_let_in_beside_the_master(arguments: &[&str]) {
    let [master, replica] = pair(arguments).await;
    // What is granted from now on is not copied.
    promote(&replica);
    // As if that had been long ago: by its settings it would remember.
    replica.cli(&["CONFIG", "SET", "repl-backlog-ttl", "3600"]);
    let holder = OtherHolder::holding(&store(&master).await, "a", MAX_TTL).await;
    assert_eq!(replica.cli(&["EXISTS", "app:a"]), "0");
    let next = wait_for(&store(&replica).await, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_promoted_master_that_forgot_that_it_was_a_replica_lets_nobody_in_too_early() {
    nobody_is_let_in_beside_the_master(&[]).await;
}

#[tokio::test]
async fn what_a_replica_has_on_disk_is_no_proof_that_it_has_everything() {
    nobody_is_let_in_beside_the_master(&["--appendonly", "yes", "--appendfsync", "always"]).await;
}

#[tokio::test]
async fn a_promoted_master_without_a_copy_of_the_marker_lets_nobody_in_too_early() {
    let [master, replica] = pair(&[]).await;
    promote(&replica);
    let holder = OtherHolder::holding(&store(&master).await, "a", MAX_TTL).await;
    replica.cli(&["DEL", "app:{leasehold}:marker", "app:{leasehold}:token"]);
    let next = wait_for(&store(&replica).await, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_master_that_is_master_again_lets_nobody_in_beside_a_holder_of_the_one_between() {
    let [first, second] = pair(&[]).await;
    promote(&second);
    follow(&first, &second);
    promote(&first);
    let holder = OtherHolder::holding(&store(&second).await, "a", MAX_TTL).await;
    let next = wait_for(&store(&first).await, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

/// A restart with a clock that is behind, and is set right a moment later: that is its uptime then.
async fn nobody_is_let_in_after_a_restart_with_a_wrong_clock(
    behind: Duration,
    persistence: &[&str],
) {
    let mut server = RedisServer::start_with_clock(persistence);
    let holder = OtherHolder::holding(&store(&server).await, "a", MAX_TTL).await;
    assert_eq!(server.cli(&["DEL", "app:a"]), "1", "it was not on disk");
    server.clock().behind(behind);
    server.restart();
    server.clock().right();
    while uptime(&server) < behind.as_secs() {
        breathe().await;
    }
    let next = wait_for(&store(&server).await, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_server_that_began_with_a_wrong_clock_is_not_as_old_as_it_says() {
    nobody_is_let_in_after_a_restart_with_a_wrong_clock(HOUR, &[]).await;
}

/// Little more than the time in which a server may have forgotten something.
#[tokio::test]
async fn a_server_whose_clock_was_behind_for_some_seconds_is_not_as_old_as_it_says() {
    let some = MAX_TTL + Duration::from_secs(4);
    nobody_is_let_in_after_a_restart_with_a_wrong_clock(some, &[]).await;
}

#[tokio::test]
async fn a_server_that_began_with_a_wrong_clock_and_kept_its_data_is_not_as_old_as_it_says() {
    nobody_is_let_in_after_a_restart_with_a_wrong_clock(HOUR, &["--appendonly", "yes"]).await;
}

#[tokio::test]
async fn a_prefix_that_is_new_to_an_old_server_is_granted_at_once() {
    let server = RedisServer::start();
    while age(&server) <= MAX_TTL.as_secs() {
        breathe().await;
    }
    let _held = grant(&store(&server).await, &claim_for("a", SHORT)).await;
}

/// A flush long ago costs nothing: only a prefix that was used before it is waited for.
#[tokio::test]
async fn a_prefix_that_is_new_to_a_server_that_was_flushed_is_granted_at_once() {
    let server = RedisServer::start();
    while age(&server) <= MAX_TTL.as_secs() {
        breathe().await;
    }
    let other = server.url("prefix=other&max_ttl=8s");
    let other = RedisStore::connect(&other).await.unwrap();
    let _held = grant(&other, &claim_for("a", SHORT)).await;
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    let _held = grant(&store(&server).await, &claim_for("a", SHORT)).await;
    assert!(is_busy(&other, &once(claim_for("a", SHORT))).await);
}

/// Deposed and promoted again while nobody sent anything: the marker and the connection are those
/// of before.
#[tokio::test]
async fn a_connection_that_was_idle_while_its_server_was_deposed_and_promoted_again_grants_nothing()
{
    let server = RedisServer::start();
    while age(&server) <= MAX_TTL.as_secs() {
        breathe().await;
    }
    let ours = store(&server).await;
    let before = grant(&ours, &claim_for("a", SHORT)).await;
    release(&ours, &before).await;
    // Longer than an idle second.
    breathe_for(Duration::from_millis(1_500)).await;
    let nobody = free_port().to_string();
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &nobody]), "OK");
    // What only reads is answered by a replica too.
    assert_eq!(ours.inspect(&key("a")).await.unwrap(), None);
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    let got = ours.acquire(&claim_for("a", SHORT)).await;
    assert!(matches!(got, Ok(Acquired::NotReady { .. })), "{got:?}");
}
