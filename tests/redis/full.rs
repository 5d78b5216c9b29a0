//! A server without memory (`noeviction`): whoever holds goes on, and every end is an end. Only new
//! claims are refused.

use std::time::Duration;

use leasehold::redis::RedisStore;
use leasehold::store::{Claim, Grant, LockMode, Released, Renewed, Revoke, Store};

use crate::claims::{claim, grant, is_busy, key, once, queued, release};
use crate::server::RedisServer;

const QUERY: &str = "prefix=app&restart_quarantine=off";

/// Holds of every mode.
struct World {
    server: RedisServer,
    store: RedisStore,
    held: Vec<Grant>,
}

impl World {
    async fn start(more: &[&Claim]) -> Self {
        let server = RedisServer::start();
        let store = RedisStore::connect(&server.url(QUERY)).await.unwrap();
        let mut held = Vec::new();
        for claim in more {
            held.push(grant(&store, claim).await);
        }
        Self {
            server,
            store,
            held,
        }
    }

    fn fill(&self) {
        self.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let refused = self.server.cli(&["SET", "more", "x"]);
        assert!(refused.starts_with("OOM"), "{refused}");
    }
}

#[tokio::test]
async fn holds_of_every_mode_are_renewed() {
    let claims = [
        claim("plain"),
        queued("written", LockMode::Write),
        queued("read", LockMode::Read),
        queued("read", LockMode::Read),
    ];
    let world = World::start(&claims.each_ref()).await;
    world.fill();
    let before: i64 = world.server.cli(&["PTTL", "app:read"]).parse().unwrap();
    // Each by itself: a renewal of another one would need memory first, or none.
    for held in &world.held {
        let renewed = world.store.renew(std::slice::from_ref(held)).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    }
    let after: i64 = world.server.cli(&["PTTL", "app:read"]).parse().unwrap();
    assert!(after > before - 5_000, "{after} after {before}");
    for held in &world.held {
        release(&world.store, held).await;
    }
    for name in ["plain", "written", "read"] {
        assert!(world.store.inspect(&key(name)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_key_rests_after_its_release() {
    let world = World::start(&[&claim("job")]).await;
    world.fill();
    let rest = Duration::from_secs(60);
    let released = world.store.rest(&world.held[0], rest).await;
    assert!(matches!(released, Released::Released), "{released:?}");
    world.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(is_busy(&world.store, &once(claim("job"))).await);
    let info = world.store.inspect(&key("job")).await.unwrap().unwrap();
    assert!(info.is_resting && info.remaining.unwrap() > Duration::from_secs(30));
}

#[tokio::test]
async fn a_release_hands_the_lock_over() {
    for mode in [LockMode::Exclusive, LockMode::Read, LockMode::Write] {
        let world = World::start(&[&queued("a", LockMode::Write)]).await;
        let next = queued("a", mode);
        assert!(is_busy(&world.store, &next).await);
        world.fill();
        release(&world.store, &world.held[0]).await;
        let info = world.store.inspect(&key("a")).await.unwrap();
        assert!(info.is_some(), "it is the next one's: {mode}");
        let _held = grant(&world.store, &next).await;
    }
}

#[tokio::test]
async fn a_writer_becomes_a_reader_and_a_lock_is_revoked() {
    let writers = [
        queued("a", LockMode::Write),
        queued("b", LockMode::Write),
        queued("c", LockMode::Read),
    ];
    let world = World::start(&writers.each_ref()).await;
    world.fill();
    let read = world.store.downgrade(&world.held[0]).await.unwrap();
    release(&world.store, &read).await;
    for held in &world.held[1..] {
        let key = &held.claim.key;
        let _revoked = world.store.revoke(key, Revoke::AfterTtl).await.unwrap();
        let renewed = world.store.renew(std::slice::from_ref(held)).await;
        assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    }
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_repeated_to_who_waited() {
    let claims = [
        queued("fair", LockMode::Exclusive),
        queued("written", LockMode::Write),
        queued("read", LockMode::Read),
    ];
    let world = World::start(&claims.each_ref()).await;
    world.fill();
    for held in &world.held {
        let again = grant(&world.store, &held.claim).await;
        assert_eq!(again.token, held.token);
    }
}
