//! A server's wall clock that is ahead, is set back, or both: what it grants, for how long, and
//! under which token.

use std::time::Duration;

use leasehold::fence::Resolve;
use leasehold::redis::{RedisBatch, RedisStore, Written};
use leasehold::run::{Doubt, HeldKey, Resolution};
use leasehold::store::quorum::Quorum;
use leasehold::store::{Acquired, LockMode, Released, Revoke, Revoked, Store};

use crate::claims::{claim, claim_for, grant, key, queued, release};
use crate::fence::{fence, name, token};
use crate::other_holder::wait_for;
use crate::quorum::member;
use crate::server::{RedisServer, breathe};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

#[tokio::test]
async fn a_grant_that_is_repeated_after_the_clock_was_set_back_is_no_longer_than_its_ttl() {
    let server = RedisServer::start_with_clock(&[]);
    let store = store(&server).await;
    let claims = [
        claim("plain"),
        queued("fair", LockMode::Exclusive),
        queued("written", LockMode::Write),
        queued("read", LockMode::Read),
    ];
    for claim in &claims {
        let _held = grant(&store, claim).await;
    }
    server.clock().behind(HOUR);
    let left = server.cli(&["PTTL", "app:plain"]).parse::<u128>();
    assert!(left.unwrap() > claims[0].ttl.as_millis(), "it was set back");
    for claim in &claims {
        let again = grant(&store, claim).await;
        assert!(again.proof.ttl <= claim.ttl, "{again:?}");
    }
}

#[tokio::test]
async fn a_downgrade_after_the_clock_was_set_back_is_no_longer_than_its_ttl() {
    let server = RedisServer::start_with_clock(&[]);
    let store = store(&server).await;
    let held = grant(&store, &queued("a", LockMode::Write)).await;
    server.clock().behind(HOUR);
    for _ in 0..2 {
        // The second is answered as the first was.
        let read = store.downgrade(&held).await.unwrap();
        assert!(read.proof.ttl <= held.claim.ttl, "{read:?}");
    }
}

/// Its client is gone: nobody renews it.
#[tokio::test]
async fn after_the_clock_was_set_back_a_dead_holder_keeps_its_lock_for_max_ttl_at_most() {
    const MAX_TTL: Duration = Duration::from_secs(30);
    let server = RedisServer::start_with_clock(&[]);
    let store = store(&server).await;
    let dead = [
        claim("plain"),
        queued("fair", LockMode::Exclusive),
        queued("read", LockMode::Read),
    ];
    let revoked = claim("revoked");
    for claim in dead.iter().chain([&revoked]) {
        let _held = grant(&store, claim).await;
    }
    // What is not ours, and a rest, last as they were meant to.
    server.cli(&["SET", "app:theirs", "of another client", "PX", "600000"]);
    let rested = grant(&store, &claim("rested")).await;
    let rest = store.rest(&rested, HOUR).await;
    assert!(matches!(rest, Released::Released), "{rest:?}");
    server.clock().behind(DAY);
    let busy = async |name: &str| {
        let mode = if name == "read" {
            LockMode::Write
        } else {
            LockMode::Exclusive
        };
        match store.acquire(&queued(name, mode)).await {
            Ok(Acquired::Busy {
                remaining: Some(left),
            }) => left,
            other => panic!("{name}: {other:?}"),
        }
    };
    for claim in &dead {
        let left = busy(claim.key.as_str()).await;
        assert!(left <= MAX_TTL, "{left:?}: {}", claim.key);
    }
    match store.revoke(&revoked.key, Revoke::AfterTtl).await.unwrap() {
        Revoked::Revoked { free_in } => assert!(free_in <= MAX_TTL, "{free_in:?}"),
        other => panic!("{other:?}"),
    }
    for name in ["theirs", "rested"] {
        assert!(busy(name).await > DAY, "{name}");
    }
}

#[tokio::test]
async fn a_quarantine_that_was_begun_by_a_clock_that_was_ahead_lasts_no_longer_than_max_ttl() {
    let mut server = RedisServer::start_with_clock(&[]);
    server.clock().ahead(DAY);
    server.restart();
    let connect = async || RedisStore::connect(&server.url("prefix=app&max_ttl=3s")).await;
    let short = Duration::from_millis(200);
    let answer = connect()
        .await
        .unwrap()
        .acquire(&claim_for("a", short))
        .await;
    assert!(
        matches!(answer, Ok(Acquired::NotReady { .. })),
        "{answer:?}"
    );
    server.clock().right();
    let store = connect().await.unwrap();
    match store.acquire(&claim_for("a", short)).await {
        Ok(Acquired::NotReady { retry_after }) => {
            assert!(retry_after <= Duration::from_secs(3), "{retry_after:?}");
        }
        other => panic!("{other:?}"),
    }
    let _held = wait_for(&store, &claim_for("a", short)).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_new_clients_and_old_ones_are_granted_newer_tokens() {
    let server = RedisServer::start_with_clock(&[]);
    let old = store(&server).await;
    let mut last = grant(&old, &claim("a")).await;
    server.clock().behind(HOUR);
    let new = store(&server).await;
    for store in [&new, &old, &new] {
        // By its own clock the server would keep it for an hour.
        release(store, &last).await;
        let next = grant(store, &claim("a")).await;
        assert!(next.token > last.token);
        last = next;
    }
}

#[tokio::test]
async fn after_the_clocks_of_a_quorum_were_set_back_new_clients_and_old_ones_are_granted_newer_tokens()
 {
    let servers = [(); 3].map(|()| RedisServer::start_with_clock(&[]));
    let quorum = || {
        let members = servers.iter().map(|server| member(server, FRESH));
        Quorum::new(members).unwrap()
    };
    let old = quorum();
    let first = grant(&old, &claim("a")).await;
    release(&old, &first).await;
    // One of them has granted more than the others, which have to follow it.
    servers[0].cli(&["INCRBY", "app:{leasehold}:token", "1000"]);
    for server in &servers {
        server.clock().behind(HOUR);
    }
    let (new, mut last) = (quorum(), first.token);
    for store in [&new, &old, &new] {
        let next = grant(store, &claim("a")).await;
        assert!(next.token > last);
        last = next.token;
        release(store, &next).await;
    }
}

#[tokio::test]
async fn a_fence_goes_on_with_newer_tokens_after_the_clock_was_set_back() {
    let server = RedisServer::start_with_clock(&[]);
    let (store, fence) = (store(&server).await, fence(&server).await);
    let mut last = grant(&store, &claim("a")).await;
    let write = async |token, by| {
        let (key, batch) = (key("a"), RedisBatch::new().increment_by("count", by));
        let written = fence.write(&key, token, name(), "step", &batch);
        written.await.unwrap()
    };
    assert_eq!(write(last.token, 1).await, Written::Applied);
    server.clock().behind(DAY);
    for _ in 0..2 {
        release(&store, &last).await;
        last = grant(&store, &claim("a")).await;
        assert_eq!(write(last.token, 1).await, Written::Applied);
    }
    assert_eq!(server.cli(&["GET", "count"]), "3");
}

#[tokio::test]
async fn a_commit_that_was_applied_is_never_resolved_as_not_applied_wherever_the_clock_goes() {
    let server = RedisServer::start_with_clock(&[]);
    let fence = fence(&server).await;
    let (applied, lost) = (name(), name());
    let batch = RedisBatch::new().increment_by("count", 1);
    let commit = async |txn_id| {
        fence
            .write(&key("a"), token(1), txn_id, "commit", &batch)
            .await
    };
    assert_eq!(commit(applied).await.unwrap(), Written::Applied);
    let resolved = async |txn_id| {
        let held = HeldKey {
            key: key("a"),
            token: token(1),
        };
        fence.resolve(&Doubt::new(vec![held], txn_id)).await
    };
    assert_eq!(resolved(applied).await.unwrap(), Resolution::Applied);
    assert_eq!(resolved(lost).await.unwrap(), Resolution::NotApplied);
    for days in [8, 40] {
        server.clock().ahead(days * DAY);
        // The server looks at its keys as it is asked for them: what has an end by then is gone.
        server.cli(&["SET", "short", "1", "PX", "1"]);
        while server.cli(&["EXISTS", "short"]) != "0" {
            breathe().await;
        }
        for name in server.cli(&["KEYS", "*"]).lines() {
            server.cli(&["EXISTS", name]);
        }
        let ahead = resolved(applied).await;
        assert!(!matches!(ahead, Ok(Resolution::NotApplied)), "{ahead:?}");
        server.clock().right();
        let after = resolved(applied).await;
        assert!(!matches!(after, Ok(Resolution::NotApplied)), "{after:?}");
        let void = resolved(lost).await;
        assert!(!matches!(void, Ok(Resolution::Applied)), "{void:?}");
        // Copies that come late.
        drop(commit(applied).await);
        assert!(commit(lost).await.is_err());
        assert_eq!(server.cli(&["GET", "count"]), "1", "it is applied once");
    }
    assert_eq!(commit(name()).await.unwrap(), Written::Applied);
}
