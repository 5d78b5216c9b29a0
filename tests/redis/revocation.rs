//! Locks that an operator takes away in a Redis server: from us, from readers, from other clients.

use std::time::Duration;

use crate::claims::{claim, grant, is_busy, key, once, queued, release};
use crate::server::{RedisServer, breathe};
use leasehold::redis::RedisStore;
use leasehold::store::{LockMode, Released, Renewed, Revoke, Revoked, Store};
use leasehold::{Ended, ErrorKind, LockManager, Settings};

const FRESH: &str = "prefix=app&restart_quarantine=off";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

async fn free_in(store: &RedisStore, how: Revoke) -> Duration {
    match store.revoke(&key("a"), how).await.unwrap() {
        Revoked::Revoked { free_in } => free_in,
        other => panic!("{other:?}"),
    }
}

/// A plain client asks, as any in another language would.
fn is_kept_out(server: &RedisServer) -> bool {
    let answer = server.cli(&["SET", "app:a", "theirs", "NX", "PX", "60000"]);
    assert!(["", "OK"].contains(&answer.as_str()), "{answer}");
    answer.is_empty()
}

#[tokio::test]
async fn a_revoked_lock_is_barred_to_everybody_until_the_old_time_is_over() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    server.cli(&["PEXPIRE", "app:a", "8000"]);
    let free_in = free_in(&store, Revoke::AfterTtl).await;
    assert!(free_in > Duration::from_secs(1) && free_in <= Duration::from_secs(8));
    // Neither its holder nor anybody else renews, releases, withdraws or enters it.
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    assert!(matches!(store.release(&held).await, Released::AlreadyGone));
    let again = store.acquire(&held.claim).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid, "{again}");
    store.withdraw(&held.claim).await.unwrap();
    for mode in [LockMode::Exclusive, LockMode::Read, LockMode::Write] {
        assert!(is_busy(&store, &queued("a", mode)).await);
    }
    assert!(is_busy(&store, &once(claim("a"))).await);
    assert!(is_kept_out(&server));
    let left: u64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!((1..=8_000).contains(&left), "{left}");
}

#[tokio::test]
async fn after_the_bar_who_stood_first_is_served_first() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _held = grant(&store, &claim("a")).await;
    let [first, later] = [(); 2].map(|()| queued("a", LockMode::Exclusive));
    assert!(is_busy(&store, &first).await && is_busy(&store, &later).await);
    let _ = free_in(&store, Revoke::AfterTtl).await;
    server.cli(&["PEXPIRE", "app:a", "300"]);
    // The server counts by its own clock.
    while server.cli(&["GET", "app:a"]) == "leasehold:barred" {
        breathe().await;
    }
    assert!(is_busy(&store, &once(claim("a"))).await);
    // The first is next for as long as this test takes.
    server.cli(&["PERSIST", "app:a"]);
    assert!(is_busy(&store, &later).await);
    let _held = grant(&store, &first).await;
}

#[tokio::test]
async fn a_lock_revoked_now_is_free_at_once_and_not_for_its_old_holder() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    assert_eq!(free_in(&store, Revoke::Now).await, Duration::ZERO);
    let next = grant(&store, &claim("a")).await;
    assert!(next.token > held.token);
    let renewed = store.renew(&[held.clone(), next.clone()]).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Extended(_)]),
        "{renewed:?}"
    );
    assert!(matches!(store.release(&held).await, Released::AlreadyGone));
    assert!(store.acquire(&held.claim).await.is_err());
    release(&store, &next).await;
}

#[tokio::test]
async fn readers_are_revoked_together_and_barred_for_the_longest_of_them() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut readers = Vec::new();
    for ttl in [20, 5] {
        let mut claim = queued("a", LockMode::Read);
        claim.ttl = Duration::from_secs(ttl);
        readers.push(grant(&store, &claim).await);
    }
    let free_in = free_in(&store, Revoke::AfterTtl).await;
    assert!(free_in > Duration::from_secs(10) && free_in <= Duration::from_secs(20));
    let renewed = store.renew(&readers).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Gone]),
        "{renewed:?}"
    );
    for reader in &readers {
        assert!(store.acquire(&reader.claim).await.is_err());
        assert!(matches!(store.release(reader).await, Released::AlreadyGone));
    }
    assert!(is_busy(&store, &queued("a", LockMode::Read)).await);
}

#[tokio::test]
async fn a_tombstone_is_reported_and_can_be_removed() {
    let server = RedisServer::start();
    let url = server.url("restart_quarantine=off");
    let store = RedisStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let _ = free_in(&store, Revoke::AfterTtl).await;
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    let reported = (record.holders, record.mode, &record.label, record.token);
    assert_eq!(reported, (0, None, &None, None));
    assert!(record.remaining.unwrap() <= held.claim.ttl);
    assert_eq!(store.list("").await.unwrap().len(), 1);
    // Nobody holds it any more, and a bar is no hold.
    for (how, is_free) in [(Revoke::AfterTtl, false), (Revoke::Now, true)] {
        let revoked = store.revoke(&key("a"), how).await.unwrap();
        assert_eq!(revoked, Revoked::NotHeld);
        assert_eq!(is_busy(&store, &once(claim("a"))).await, !is_free);
    }
}

#[tokio::test]
async fn another_clients_lock_is_barred_for_its_own_time() {
    let server = RedisServer::start();
    let store = store(&server).await;
    server.cli(&["SET", "app:a", "theirs", "PX", "60000"]);
    let free_in = free_in(&store, Revoke::AfterTtl).await;
    assert!(free_in > Duration::from_secs(50));
    assert_ne!(server.cli(&["GET", "app:a"]), "theirs");
    assert!(is_busy(&store, &once(claim("a"))).await);
    let left: u64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!(left > 50_000, "{left}");
}

#[tokio::test]
async fn a_value_that_never_expires_is_freed_now_or_left_alone() {
    let server = RedisServer::start();
    let store = store(&server).await;
    server.cli(&["SET", "app:a", "theirs"]);
    let error = store.revoke(&key("a"), Revoke::AfterTtl).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("never expires"), "{error}");
    assert_eq!(server.cli(&["GET", "app:a"]), "theirs");
    assert_eq!(free_in(&store, Revoke::Now).await, Duration::ZERO);
    let _held = grant(&store, &claim("a")).await;
}

#[tokio::test]
async fn a_key_of_a_wrong_type_is_not_revoked() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for name in ["app:a", "app:a{app:a}:readers", "app:a{app:a}:grants"] {
        server.cli(&["FLUSHALL"]);
        let held = grant(&store, &claim("a")).await;
        server.cli(&["DEL", name]);
        server.cli(&["RPUSH", name, "1"]);
        for how in [Revoke::AfterTtl, Revoke::Now] {
            let error = store.revoke(&key("a"), how).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        }
        assert_eq!(server.cli(&["LRANGE", name, "0", "-1"]), "1");
        if name != "app:a" {
            release(&store, &held).await;
        }
    }
}

#[tokio::test]
async fn a_manager_takes_a_lock_from_a_holder_that_hears_of_it_at_its_next_heartbeat() {
    let server = RedisServer::start();
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(9);
    settings.request_timeout = settings.ttl;
    let [ours, theirs] = [(); 2].map(|()| {
        let options = leasehold::redis::RedisOptions::parse(&server.url(FRESH)).unwrap();
        let store = RedisStore::member(options).unwrap();
        let builder = LockManager::builder(store).settings(settings.clone());
        builder.build().unwrap()
    });
    let guard = ours.lock("a").acquire().await.unwrap();
    let revoked = theirs.revoke("a", Revoke::AfterTtl).await.unwrap();
    assert!(matches!(revoked, Revoked::Revoked { free_in } if free_in <= settings.ttl));
    assert_eq!(guard.lost().await, Ended::Gone);
    let next = theirs.lock("a").acquire().await.unwrap();
    assert!(next.token() > guard.token());
    let revoked = ours.revoke("a", Revoke::Now).await.unwrap();
    let free_in = Duration::ZERO;
    assert_eq!(revoked, Revoked::Revoked { free_in });
    assert!(ours.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_revocation_that_finds_the_lock_free_calls_who_waits() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _held = grant(&store, &claim("a")).await;
    let waits = claim("a");
    assert!(is_busy(&store, &waits).await);
    // The ttl of the holder is over.
    server.cli(&["DEL", "app:a"]);
    let revoked = store.revoke(&key("a"), Revoke::AfterTtl).await.unwrap();
    assert!(matches!(revoked, Revoked::NotHeld), "{revoked:?}");
    server.cli(&["PERSIST", "app:a"]);
    let value = server.cli(&["GET", "app:a"]);
    assert!(
        value.starts_with(&waits.owner.expose().to_string()),
        "{value}"
    );
}
