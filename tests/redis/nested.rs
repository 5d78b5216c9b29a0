//! Prefixes of which one begins the other: the lock `b:x` under `a` is the lock `x` under `a:b`, in
//! everything.

use std::time::Duration;

use leasehold::fence::Fence;
use leasehold::redis::{RedisFence, RedisStore};
use leasehold::store::{Acquired, LockMode, Store};

use crate::claims::{claim_for, grant, is_busy, key, once, queued, release};
use crate::fence::token;
use crate::other_holder::{OtherHolder, age, wait_for};
use crate::server::{RedisServer, breathe};

/// The same lock, under each of two prefixes.
const OUTER: (&str, &str) = ("a", "b:x");
const INNER: (&str, &str) = ("a:b", "x");

async fn store(server: &RedisServer, prefix: &str) -> RedisStore {
    let url = server.url(&format!("prefix={prefix}&restart_quarantine=off"));
    RedisStore::connect(&url).await.unwrap()
}

#[tokio::test]
async fn a_writer_waits_for_the_readers_of_both() {
    for ours in [OUTER, INNER] {
        let theirs = if ours == OUTER { INNER } else { OUTER };
        let server = RedisServer::start();
        let (first, second) = (store(&server, ours.0).await, store(&server, theirs.0).await);
        let held = grant(&first, &queued(ours.1, LockMode::Read)).await;
        let short = grant(&second, &queued(theirs.1, LockMode::Read)).await;
        release(&second, &short).await;
        let writer = once(queued(theirs.1, LockMode::Write));
        assert!(is_busy(&second, &writer).await, "beside a reader");
        release(&first, &held).await;
        let _held = grant(&second, &writer).await;
    }
}

#[tokio::test]
async fn whoever_waits_under_one_is_served_before_whoever_comes_later_under_the_other() {
    let server = RedisServer::start();
    let outer = store(&server, OUTER.0).await;
    let inner = store(&server, INNER.0).await;
    let held = grant(&outer, &queued(OUTER.1, LockMode::Exclusive)).await;
    let first = queued(INNER.1, LockMode::Exclusive);
    let second = queued(OUTER.1, LockMode::Exclusive);
    assert!(is_busy(&inner, &first).await);
    assert!(is_busy(&outer, &second).await);
    release(&outer, &held).await;
    assert!(is_busy(&outer, &second).await, "out of turn");
    let held = grant(&inner, &first).await;
    release(&inner, &held).await;
    let _held = grant(&outer, &second).await;
}

#[tokio::test]
async fn a_renewed_reader_of_one_is_held_for_the_other() {
    let server = RedisServer::start();
    let outer = store(&server, OUTER.0).await;
    let inner = store(&server, INNER.0).await;
    let mut reads = queued(INNER.1, LockMode::Read);
    let held = grant(&inner, &reads).await;
    let renewed = inner.renew(std::slice::from_ref(&held)).await;
    assert!(
        matches!(renewed[..], [leasehold::store::Renewed::Extended(_)]),
        "{renewed:?}"
    );
    // Another reader, of the other prefix, does not end it.
    reads.ttl = Duration::from_secs(1);
    let other = grant(&outer, &queued(OUTER.1, LockMode::Read)).await;
    release(&outer, &other).await;
    let answer = outer.acquire(&once(queued(OUTER.1, LockMode::Write))).await;
    assert!(matches!(answer, Ok(Acquired::Busy { .. })), "{answer:?}");
}

/// Plain, and by the line of those that wait.
#[tokio::test]
async fn tokens_of_a_lock_grow_by_whichever_it_is_asked_for() {
    let server = RedisServer::start();
    let (outer, inner) = (store(&server, OUTER.0).await, store(&server, INNER.0).await);
    for mode in [None, Some(LockMode::Exclusive), Some(LockMode::Read)] {
        let mut last = None;
        for _ in 0..3 {
            for (store, name) in [(&outer, OUTER.1), (&inner, INNER.1)] {
                let ours = mode.map_or_else(
                    || claim_for(name, Duration::from_secs(10)),
                    |mode| queued(name, mode),
                );
                let held = grant(store, &ours).await;
                assert!(
                    Some(held.token) > last,
                    "{mode:?}: {:?} {last:?}",
                    held.token
                );
                last = Some(held.token);
                release(store, &held).await;
            }
        }
    }
}

/// A mistake: `max_ttl` is the same for all. But a live lease is not shortened by it.
#[tokio::test]
async fn a_hold_that_is_longer_than_the_max_ttl_of_the_other_is_not_cut() {
    let server = RedisServer::start();
    let inner = format!("prefix={}&max_ttl=300s&restart_quarantine=off", INNER.0);
    let inner = RedisStore::connect(&server.url(&inner)).await.unwrap();
    let outer = store(&server, OUTER.0).await;
    // So that the other prefix has a last token.
    let before = grant(&outer, &claim_for("c", Duration::from_secs(10))).await;
    release(&outer, &before).await;
    let _held = grant(&inner, &claim_for(INNER.1, Duration::from_secs(200))).await;
    for mode in [LockMode::Exclusive, LockMode::Write, LockMode::Read] {
        assert!(is_busy(&outer, &once(queued(OUTER.1, mode))).await);
    }
    let left: u64 = server.cli(&["PTTL", "a:b:x"]).parse().unwrap();
    assert!(left > 100_000, "{left} ms are left");
}

#[tokio::test]
async fn a_token_that_one_has_seen_fences_the_other() {
    let server = RedisServer::start();
    let fence = async |prefix: &str| {
        let url = server.url(&format!("prefix={prefix}"));
        RedisFence::connect(&url).await.unwrap()
    };
    let (outer, inner) = (fence(OUTER.0).await, fence(INNER.0).await);
    outer.raise(&key(OUTER.1), token(7)).await.unwrap();
    assert!(inner.raise(&key(INNER.1), token(6)).await.is_err());
    inner.raise(&key(INNER.1), token(8)).await.unwrap();
    assert!(outer.raise(&key(OUTER.1), token(7)).await.is_err());
}

/// A flush takes the markers of both, and a process that comes with one of them for the first time
/// sees no trace of its own.
#[tokio::test]
async fn whoever_comes_after_a_flush_waits_for_the_holders_of_the_other() {
    const MAX_TTL: Duration = Duration::from_secs(1);
    let whole = ("", "a:b:x");
    let pairs = [
        (OUTER, INNER),
        (INNER, OUTER),
        (whole, INNER),
        (INNER, whole),
    ];
    let servers = pairs.map(|pair| (RedisServer::start(), pair));
    for (server, (ours, theirs)) in &servers {
        let store = async |prefix| {
            let url = server.url(&format!("prefix={prefix}&max_ttl=1s"));
            RedisStore::connect(&url).await.unwrap()
        };
        // Real time, since the server counts its age in whole seconds: older than max_ttl, so that
        // it is trusted.
        while age(server) < 3 {
            breathe().await;
        }
        let holder = OtherHolder::holding(&store(theirs.0).await, theirs.1, MAX_TTL).await;
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
        let ours_now = claim_for(ours.1, Duration::from_millis(200));
        let next = wait_for(&store(ours.0).await, &ours_now).await;
        holder.has_given_way_to(&next);
    }
}
