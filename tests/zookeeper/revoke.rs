//! Revocation on a real ZooKeeper: nobody enters before the old lease has ended, and everybody gets
//! in afterwards, whichever processes are gone.

use std::time::Duration;

use crate::proxy::Proxy;
use crate::zookeeper::{
    PATIENCE, SHORT, Server, children, claim, claim_in, free_port, granted, is_busy, line, open,
    options, raw, renewed, short_store, simple_store, store, until, wait_for,
};
use leasehold::ErrorKind;
use leasehold::clock::Clock;
use leasehold::store::{Claim, Grant, LockMode, Released, Renewed, Revoke, Revoked, Share, Store};
use leasehold::zookeeper::{DriverKind, ZooKeeperStore};
use zookeeper_client::{Acls, CreateMode};

async fn taken_away(store: &ZooKeeperStore, key: &str) -> Duration {
    let key = key.parse().unwrap();
    match store.revoke(&key, Revoke::AfterTtl).await.unwrap() {
        Revoked::Revoked { free_in } => free_in,
        other => panic!("{other:?}"),
    }
}

/// Waits for a grant, and demands that it did not come before the end of an older one.
async fn granted_after(store: &ZooKeeperStore, claim: &Claim, old: &Grant) -> Grant {
    let clock = Clock::system().unwrap();
    let next = clock.timeout(PATIENCE, wait_for(store, claim)).await;
    let waited = clock.stamp().since(&old.proof.sent_at.unwrap());
    assert!(
        waited >= old.proof.ttl,
        "granted {waited:?} after the base of a lease of {:?}",
        old.proof.ttl
    );
    next.expect("the key becomes free")
}

#[tokio::test]
async fn a_barrier_replaces_the_holder_for_clients_of_other_libraries_too() {
    let server = Server::shared();
    let (ours, theirs) = (
        short_store(&server.address(), "/bar-place").await,
        store(&server, "/bar-place").await,
    );
    let client = raw(&server).await;
    let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for (mode, foreign, bar) in [
        (LockMode::Exclusive, "_c_java-lock-", "-bar-lock-"),
        (LockMode::Write, "_c_java-__WRIT__", "-bar-__WRIT__"),
        (LockMode::Read, "_c_java-__WRIT__", "-bar-__WRIT__"),
    ] {
        let (key, path) = (format!("{mode}"), format!("/bar-place/{mode}"));
        let held = granted(&ours, &claim_in(mode, &key)).await;
        let holder = line(&client, &path).await.remove(0);
        let (_, _) = client
            .create(&format!("{path}/{foreign}"), b"", &sequential)
            .await
            .unwrap();
        let waiting = line(&client, &path).await.remove(1);
        assert_eq!(taken_away(&theirs, &key).await, SHORT);
        let now = line(&client, &path).await;
        assert_eq!(now.len(), 2, "{now:?}");
        let place = &holder[holder.len() - 10..];
        assert!(now[0].ends_with(&format!("{bar}{place}")), "{now:?}");
        assert_eq!(now[1], waiting);
        assert!(matches!(renewed(&ours, &held).await, Renewed::Gone));
    }
}

#[tokio::test]
async fn a_barrier_lasts_for_the_lease_of_the_holder_and_not_of_the_operator() {
    let server = Server::shared();
    let holder = store(&server, "/bar-length").await;
    let operator = short_store(&server.address(), "/bar-length").await;
    let held = granted(&holder, &claim("k")).await;
    assert_eq!(taken_away(&operator, "k").await, held.proof.ttl);
    let reported = operator.inspect(&held.claim.key).await.unwrap().unwrap();
    assert_eq!((reported.holders, reported.label), (0, None));
    assert!(reported.remaining.unwrap() > SHORT);
}

#[tokio::test]
async fn an_operator_with_a_longer_tick_takes_a_short_lease_away() {
    let server = Server::shared();
    let holder = short_store(&server.address(), "/bar-tick").await;
    let mut careful = options(&server.address(), "/bar-tick");
    (careful.tick_time, careful.session_timeout) = (SHORT, SHORT * 4);
    let operator = open(careful).await;
    let held = granted(&holder, &claim("k")).await;
    assert_eq!(taken_away(&operator, "k").await, held.proof.ttl);
    assert!(matches!(renewed(&holder, &held).await, Renewed::Gone));
}

#[tokio::test]
async fn a_barrier_lasts_for_the_whole_lease_when_the_operator_died_at_once() {
    let server = Server::shared();
    let client = raw(&server).await;
    let proxy = Proxy::to(server.port);
    let operator = short_store(&format!("127.0.0.1:{}", proxy.port), "/bar-died").await;
    let holder = short_store(&server.address(), "/bar-died").await;
    let held = granted(&holder, &claim("k")).await;
    let waiter = store(&server, "/bar-died").await;
    let waiting = claim("k");
    assert!(is_busy(&waiter, &waiting).await);
    // A heartbeat just before: the longest lease that can be.
    let Renewed::Extended(proof) = renewed(&holder, &held).await else {
        panic!("not renewed");
    };
    let held = Grant::new(held.claim, held.token, proof);
    let _ = taken_away(&operator, "k").await;
    proxy.stall();
    drop(operator);
    assert!(matches!(renewed(&holder, &held).await, Renewed::Gone));
    let next = granted_after(&waiter, &waiting, &held).await;
    assert!(next.token > held.token);
    assert_eq!(children(&client, "/bar-died/k").await.len(), 1);
}

#[tokio::test]
async fn waiting_claims_keep_their_places_behind_a_barrier() {
    let server = Server::shared();
    for mode in [LockMode::Exclusive, LockMode::Write] {
        let chroot = format!("/bar-wait-{mode}");
        let a = short_store(&server.address(), &chroot).await;
        let b = store(&server, &chroot).await;
        let held = granted(&a, &claim_in(mode, "k")).await;
        let (first, second) = (
            claim_in(LockMode::Write, "k"),
            claim_in(LockMode::Read, "k"),
        );
        assert!(is_busy(&b, &first).await);
        assert!(is_busy(&b, &second).await);
        let _ = taken_away(&b, "k").await;
        let late = claim_in(mode, "k");
        for claim in [&second, &late, &first] {
            assert!(is_busy(&b, claim).await);
        }
        let next = granted_after(&b, &first, &held).await;
        assert!(is_busy(&b, &second).await);
        assert!(is_busy(&b, &late).await);
        assert!(matches!(b.release(&next).await, Released::Released));
        let next = wait_for(&b, &second).await;
        assert!(matches!(b.release(&next).await, Released::Released));
        let _next = wait_for(&b, &late).await;
    }
}

#[tokio::test]
async fn readers_are_taken_away_together_and_a_writer_that_reads_with_them() {
    let server = Server::shared();
    let stores = [
        short_store(&server.address(), "/bar-readers").await,
        short_store(&server.address(), "/bar-readers").await,
    ];
    let client = raw(&server).await;
    let written = granted(&stores[0], &claim_in(LockMode::Write, "k")).await;
    let first = stores[0].downgrade(&written).await.unwrap();
    let second = granted(&stores[1], &claim_in(LockMode::Read, "k")).await;
    let writer = claim_in(LockMode::Write, "k");
    assert!(is_busy(&stores[1], &writer).await);
    let behind = claim_in(LockMode::Read, "k");
    assert!(is_busy(&stores[0], &behind).await);
    let _ = taken_away(&stores[0], "k").await;
    assert_eq!(line(&client, "/bar-readers/k").await.len(), 3);
    assert!(matches!(renewed(&stores[0], &first).await, Renewed::Gone));
    assert!(matches!(renewed(&stores[1], &second).await, Renewed::Gone));
    let next = granted_after(&stores[1], &writer, &second).await;
    assert!(is_busy(&stores[0], &behind).await);
    assert!(matches!(stores[1].release(&next).await, Released::Released));
    let _last = wait_for(&stores[0], &behind).await;
}

/// Each would fit once those before it were taken away.
#[tokio::test]
async fn shares_that_wait_keep_their_places_behind_a_barrier() {
    let server = Server::shared();
    let store = short_store(&server.address(), "/bar-shares").await;
    let client = raw(&server).await;
    let share = || {
        let mut claim = claim_in(LockMode::Read, "k");
        claim.share = Some(Share { permits: 2, of: 3 });
        claim
    };
    let held = granted(&store, &share()).await;
    let waiting = [share(), share(), share()];
    for claim in &waiting {
        assert!(is_busy(&store, claim).await);
    }
    let places = line(&client, "/bar-shares/k").await.split_off(1);
    let _ = taken_away(&store, "k").await;
    let now = line(&client, "/bar-shares/k").await.split_off(1);
    assert_eq!(now, places);
    assert!(matches!(renewed(&store, &held).await, Renewed::Gone));
    let next = granted_after(&store, &waiting[0], &held).await;
    assert!(is_busy(&store, &waiting[1]).await);
    assert!(matches!(store.release(&next).await, Released::Released));
}

#[tokio::test]
async fn a_simple_lock_is_barred_as_well() {
    let server = Server::shared();
    let mut options = options(&server.address(), "/bar-simple");
    options.mode = leasehold::zookeeper::ZooKeeperMode::Simple;
    options.session_timeout = SHORT;
    let (a, b) = (
        open(options).await,
        simple_store(&server, "/bar-simple").await,
    );
    let held = granted(&a, &claim("k")).await;
    let _ = taken_away(&b, "k").await;
    assert!(matches!(renewed(&a, &held).await, Renewed::Gone));
    let error = a.acquire(&held.claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let _next = granted_after(&b, &claim("k"), &held).await;
}

#[tokio::test]
async fn a_barrier_is_deleted_by_a_revocation_that_does_not_wait() {
    let server = Server::shared();
    let (a, b) = (
        store(&server, "/bar-now").await,
        store(&server, "/bar-now").await,
    );
    let held = granted(&a, &claim("k")).await;
    let _ = taken_away(&b, "k").await;
    let waiting = claim("k");
    assert!(is_busy(&a, &waiting).await);
    let key = &held.claim.key;
    assert_eq!(
        b.revoke(key, Revoke::AfterTtl).await.unwrap(),
        Revoked::NotHeld
    );
    assert!(is_busy(&a, &waiting).await);
    assert_eq!(b.revoke(key, Revoke::Now).await.unwrap(), Revoked::NotHeld);
    let _next = granted(&a, &waiting).await;
}

#[tokio::test]
async fn a_barrier_outlives_the_store_that_made_it_and_then_ends_by_itself() {
    let server = Server::shared();
    let client = raw(&server).await;
    let clock = Clock::system().unwrap();
    let store = short_store(&server.address(), "/bar-alone").await;
    let held = granted(&store, &claim("k")).await;
    let before = clock.stamp();
    let _ = taken_away(&store, "k").await;
    assert!(matches!(renewed(&store, &held).await, Renewed::Gone));
    store.close().await.unwrap();
    drop(store);
    assert_eq!(line(&client, "/bar-alone/k").await.len(), 1);
    until("the server deletes the barrier", || async {
        line(&client, "/bar-alone/k").await.is_empty()
    })
    .await;
    assert!(clock.stamp().since(&before) >= SHORT);
}

/// The holder's session is the longest that this server grants.
#[tokio::test]
async fn a_barrier_covers_the_lease_where_the_server_cuts_its_session() {
    let server = Server::spawn(
        "short",
        free_port(),
        "maxSessionTimeout=4000",
        None,
        crate::zookeeper::TICK,
    );
    server.wait_until_ready();
    let holder = short_store(&server.address(), "/bar-cut").await;
    let held = granted(&holder, &claim("k")).await;
    let Renewed::Extended(proof) = renewed(&holder, &held).await else {
        panic!("not renewed");
    };
    let operator = short_store(&server.address(), "/bar-cut").await;
    let _ = taken_away(&operator, "k").await;
    let held = Grant::new(held.claim, held.token, proof);
    let _next = granted_after(&operator, &claim("k"), &held).await;
}

#[tokio::test]
async fn the_second_driver_revokes_no_lock_and_changes_nothing() {
    let server = Server::shared();
    let mut options = options(&server.address(), "/bar-boxed");
    options.driver = DriverKind::Async;
    let store = open(options).await;
    assert!(!store.capability().revokes);
    let held = granted(&store, &claim("k")).await;
    let refused = store
        .revoke(&held.claim.key, Revoke::Now)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(
        refused.to_string().contains("zookeeper-client"),
        "{refused}"
    );
    assert!(matches!(renewed(&store, &held).await, Renewed::Extended(_)));
}
