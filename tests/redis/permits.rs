//! Permits in a Redis server: the sum of all shares is right however they end.

use leasehold::LockManager;
use leasehold::redis::RedisStore;
use leasehold::store::{Claim, Grant, LockMode, Share};

use crate::claims::{grant, is_busy, queued, release};
use crate::pool::callers_have_together_at_most_the_size;
use crate::server::RedisServer;

const FRESH: &str = "prefix=app&restart_quarantine=off";
const GRANTS: &str = "app:a{app:a}:grants";
const READERS: &str = "app:a{app:a}:readers";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

fn share(permits: u32, of: u32) -> Claim {
    let mut claim = queued("a", LockMode::Read);
    claim.share = Some(Share { permits, of });
    claim
}

/// What the server adds up.
fn taken(server: &RedisServer) -> String {
    server.cli(&["HGET", GRANTS, "taken"])
}

/// As if its client had died, and its ttl were over.
fn end(server: &RedisServer, claim: &Claim) {
    let owner = claim.owner.expose();
    assert_eq!(server.cli(&["ZADD", READERS, "XX", "CH", "1", &owner]), "1");
}

#[tokio::test]
async fn callers_of_two_processes_have_together_at_most_the_size() {
    let server = RedisServer::start();
    let ours = LockManager::new(store(&server).await).unwrap();
    let theirs = LockManager::new(store(&server).await).unwrap();
    callers_have_together_at_most_the_size(&ours, &theirs).await;
    assert_eq!(server.cli(&["EXISTS", "app:pool{app:pool}:grants"]), "0");
}

/// A share that is over is found by whoever releases it, and among those that are over.
#[tokio::test]
async fn a_share_is_given_back_once() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (kept, dead) = (grant(&store, &share(2, 9)).await, share(4, 9));
    let held: Grant = grant(&store, &dead).await;
    assert_eq!(taken(&server), "6");
    end(&server, &dead);
    let _ = leasehold::store::Store::release(&store, &held).await;
    assert_eq!(taken(&server), "2");
    assert!(is_busy(&store, &share(8, 9)).await);
    release(&store, &kept).await;
}

#[tokio::test]
async fn a_share_that_missed_its_call_counts_once() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (kept, leaving) = (
        grant(&store, &share(1, 4)).await,
        grant(&store, &share(3, 4)).await,
    );
    let late = share(3, 4);
    assert!(is_busy(&store, &late).await);
    release(&store, &leaving).await;
    assert_eq!(taken(&server), "4");
    end(&server, &late);
    let held = grant(&store, &late).await;
    assert_eq!(taken(&server), "4");
    release(&store, &held).await;
    assert_eq!(taken(&server), "1");
    release(&store, &kept).await;
    assert_eq!(taken(&server), "");
}

/// More are over than one script ends, so its own former hold is still there.
#[tokio::test]
async fn a_share_that_missed_its_call_counts_once_behind_a_crowd_that_died() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (kept, leaving) = (
        grant(&store, &share(1, 9)).await,
        grant(&store, &share(8, 9)).await,
    );
    let late = share(3, 9);
    assert!(is_busy(&store, &late).await);
    release(&store, &leaving).await;
    end(&server, &late);
    let crowd = "for i = 1, 600 do redis.call('ZADD', KEYS[1], 0, i) redis.call('HSET', KEYS[2], i, '1 r 1 x') end";
    server.cli(&["EVAL", crowd, "2", READERS, GRANTS]);
    let held = grant(&store, &late).await;
    assert_eq!(taken(&server), "4");
    release(&store, &held).await;
    assert_eq!(taken(&server), "1");
    release(&store, &kept).await;
}

/// A move of a slot that hangs leaves the grants to end before the readers; an eviction takes them.
#[tokio::test]
async fn no_share_joins_while_the_grant_of_a_reader_is_lost() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = share(3, 4);
    let _held = grant(&store, &held).await;
    server.cli(&["DEL", GRANTS]);
    let next = share(3, 4);
    assert!(is_busy(&store, &next).await, "6 of 4");
    end(&server, &held);
    let _next = grant(&store, &next).await;
    assert_eq!(taken(&server), "3");
}

/// Readers leave other keys free for a moment sooner or later.
#[tokio::test]
async fn a_share_joins_at_any_time() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _first = grant(&store, &share(1, 9)).await;
    let now = server.cli(&["EVAL", "return redis.call('TIME')[1]", "0"]);
    for seconds in [20, 33, 39, 73] {
        let last = (now.parse::<u64>().unwrap() - seconds) * 1_000;
        let line = "app:a{app:a}:line";
        server.cli(&["SET", line, &last.to_string(), "PX", "60000"]);
        let _joined = grant(&store, &share(1, 9)).await;
    }
    assert_eq!(taken(&server), "5");
}
