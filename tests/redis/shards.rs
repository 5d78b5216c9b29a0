//! Shards on a Redis server.

use std::time::Duration;

use leasehold::Settings;
use leasehold::redis::RedisStore;
use leasehold::store::{LockMode, Store};

use crate::claims::{grant, is_busy, queued, release};
use crate::crew::{Crew, members_come_and_go};
use crate::other_holder::wait_for;
use crate::server::RedisServer;
use crate::shard_faults::{Scene, serve_if_asked, this_test};

const FRESH: &str = "prefix=app&restart_quarantine=off";

#[tokio::test]
async fn members_come_and_go_on_a_server() {
    let server = RedisServer::start();
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(6);
    let crew = Crew::new(None, settings);
    let open = async || RedisStore::connect(&server.url(FRESH)).await.unwrap();
    members_come_and_go(crew, open, "s").await;
}

/// Readers leave other keys free for a moment sooner or later. A member that joins must not wait
/// for that.
#[tokio::test]
async fn a_member_joins_at_any_time() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let key = "s/shard-members";
    let first = grant(&store, &queued(key, LockMode::Read)).await;
    let now = server.cli(&["EVAL", "return redis.call('TIME')[1]", "0"]);
    for seconds in [20, 33, 39, 73] {
        let last = (now.parse::<u64>().unwrap() - seconds) * 1_000;
        let line = format!("app:{key}{{app:{key}}}:line");
        server.cli(&["SET", &line, &last.to_string(), "PX", "60000"]);
        let _joined = grant(&store, &queued(key, LockMode::Read)).await;
    }
    let info = store.inspect(&first.claim.key).await.unwrap().unwrap();
    assert_eq!((info.holders, info.labels.len()), (5, 5));
}

/// A queue that never empties leaves its key free for a moment now and then. A shard has an owner
/// all the time, so its next owner must not wait for that.
#[tokio::test]
async fn a_shard_moves_at_once_however_long_it_was_never_free() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let key = "s/shard/00003";
    let line = format!("app:{key}{{app:{key}}}:line");
    let mut owner = grant(&store, &queued(key, LockMode::Write)).await;
    for _ in 0..3 {
        let next = queued(key, LockMode::Write);
        assert!(is_busy(&store, &next).await);
        // It was left to others at the beginning of time.
        assert_eq!(server.cli(&["SET", &line, "1", "XX", "KEEPTTL"]), "OK");
        release(&store, &owner).await;
        assert_eq!(server.cli(&["GET", &line]), "1", "it was left to others");
        owner = wait_for(&store, &next).await;
    }
}

#[tokio::test]
async fn a_key_that_is_not_ours_keeps_no_other_shard_from_its_owner() {
    let server = RedisServer::start();
    server.cli(&["RPUSH", "app:s/shard/00001", "what somebody else keeps"]);
    let mut crew = Crew::new(None, Settings::default());
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let _only = crew.join(store, |locks| locks.shards("s", 4));
    crew.until_loads([(0, 3)]).await;
    server.cli(&["DEL", "app:s/shard/00001"]);
    crew.until_loads([(0, 4)]).await;
}

#[test]
fn owners_follow_each_other_whoever_is_killed_or_stopped() {
    let mut server = RedisServer::start();
    crate::shard_faults::owners_follow_each_other_whoever_is_killed_or_stopped(Scene {
        name: "redis",
        url: server.url("prefix=app&max_ttl=2s"),
        ttl: Duration::from_secs(1),
        program: || this_test("shards::a_process_that_serves"),
        restart: Some(|| server.restart()),
    });
}

/// What the test above starts.
#[test]
fn a_process_that_serves() {
    serve_if_asked();
}
