//! A server whose disk is full: new claims are refused, and holds stay.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::fence::Fence;
use leasehold::postgres::{PgFence, PostgresStore};
use leasehold::store::{Acquired, Claim, Grant, Released, Renewed, Store};

use crate::claims::{claim_for, grant, key, release};
use crate::server::PgServer;
use crate::world::{ACCOUNTS, assert_not_applied, hold, take_ten, token};

/// Longer than the test takes.
const LONG: Duration = Duration::from_secs(3_000);

fn url(server: &PgServer) -> String {
    format!("postgres://postgres@127.0.0.1:{}/locks", server.port())
}

async fn store(server: &PgServer) -> PostgresStore {
    let query = "create=auto&max_ttl=1h&timeout_millis=20000";
    PostgresStore::connect(&format!("{}?{query}", url(server)))
        .await
        .unwrap()
}

/// Grants of keys of their own, until a claim is refused.
async fn until_refused(store: &PostgresStore) -> (Vec<Grant>, Claim, leasehold::Error) {
    let mut held = Vec::new();
    for number in 0..100_000 {
        let ours = claim_for(&format!("{}{number}", "long/".repeat(35)), LONG);
        match store.acquire(&ours).await {
            Ok(Acquired::Granted(grant)) => held.push(grant),
            Err(error) => return (held, ours, error),
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk is never full");
}

#[track_caller]
fn assert_full(error: &leasehold::Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
}

#[tokio::test]
async fn on_a_full_disk_claims_are_refused_holds_stay_and_after_it_all_goes_on() {
    let server = PgServer::start_with_disk(48, &["fsync=on"]);
    let folder = server.disk();
    server.psql(&format!(
        "CREATE TABLESPACE small LOCATION '{}'",
        folder.display()
    ));
    server.psql("CREATE DATABASE locks TABLESPACE small");
    let store = store(&server).await;
    let first = grant(&store, &claim_for("first", LONG)).await;
    server.fill_disk();
    let (mut held, ours, error) = until_refused(&store).await;
    assert_full(&error);

    // The space for a renewal was taken with the grant.
    for _ in 0..3 {
        for renewed in store.renew(&held).await {
            assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
        }
    }
    // A claim that is withdrawn leaves a note, so that a late request of it is refused.
    assert_full(&store.withdraw(&ours).await.unwrap_err());
    release(&store, &first).await;
    let rest = held.pop().unwrap();
    match store.rest(&rest, LONG).await {
        Released::Released => {}
        Released::Unknown(error) => assert_full(&error),
        other => panic!("{other:?}"),
    }

    server.make_space();
    store.withdraw(&ours).await.unwrap();
    for renewed in store.renew(&held).await {
        assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    }
    for name in ["first", "second"] {
        let next = grant(&store, &claim_for(name, LONG)).await;
        assert!(next.token > first.token);
    }
    for held in &held {
        release(&store, held).await;
    }
}

/// The same for a commit: it is rolled back, and nobody is shut out.
#[tokio::test]
async fn on_a_full_disk_a_fenced_transaction_is_rolled_back_and_after_it_all_goes_on() {
    let server = PgServer::start_with_disk(48, &[]);
    let folder = server.disk();
    server.psql(&format!(
        "CREATE TABLESPACE small LOCATION '{}'",
        folder.display()
    ));
    server.psql("CREATE DATABASE locks TABLESPACE small");
    server.psql_in("locks", ACCOUNTS).unwrap();
    let fence = PgFence::connect(&url(&server)).await.unwrap();
    fence.create_schema().await.unwrap();
    fence.raise(&key("a"), token(1)).await.unwrap();
    server.fill_disk();
    let (mut left, mut end) = (100, None);
    // Each leaves its name.
    while end.is_none() && left > -100_000 {
        match take_ten(&hold(1).executor(), &fence).await {
            Ok(now) => left = now,
            Err(error) => end = Some(error),
        }
    }
    assert_not_applied(&end.unwrap());
    server.make_space();
    fence.raise(&key("a"), token(2)).await.unwrap();
    let taken = take_ten(&hold(2).executor(), &fence).await;
    assert_eq!(taken.unwrap(), left - 10);
}
