//! What the store makes of refusals, and of objects that are not its own.

use leasehold::clock::Clock;
use leasehold::store::{Released, Renewed, Store};
use leasehold::{ErrorKind, LockManager};

use crate::fake::{FakeS3, Fault};
use crate::{claim, granted, key};

#[tokio::test]
async fn a_pause_that_the_service_asks_for_is_kept_and_the_request_sent_again() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    server.next("PUT", Fault::Refuse(429, "", Some(1)));
    let before = Clock::system().unwrap().stamp();
    let _grant = granted(&store, &claim("a")).await;
    let after = Clock::system().unwrap().stamp();
    assert!(after.since(&before).as_millis() >= 1_000);
    assert_eq!(server.requests("PUT"), 2);
}

#[tokio::test]
async fn a_service_that_always_asks_to_wait_is_unavailable_and_has_done_nothing() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    for _ in 0..4 {
        server.next("PUT", Fault::Refuse(429, "", Some(0)));
    }
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(server.object("a"), None);
}

#[tokio::test]
async fn a_read_that_the_service_cannot_serve_now_is_sent_again() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    server.next("GET", Fault::Refuse(503, "SlowDown", Some(0)));
    assert_eq!(store.inspect(&key("a")).await.unwrap(), None);
    assert_eq!(server.requests("GET"), 2);
    server.next("GET", Fault::Refuse(500, "InternalError", None));
    let error = store.inspect(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_bucket_that_is_deleted_is_no_free_lock() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    server.next("GET", Fault::Refuse(404, "NoSuchBucket", None));
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// Of a gateway whose service is gone for a moment.
#[tokio::test]
async fn an_absence_that_the_service_did_not_state_ends_no_hold() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    let grant = granted(&store, &claim("a")).await;
    server.next("PUT", Fault::Refuse(404, "Other", None));
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[0], Renewed::Unknown(_)), "{renewed:?}");
    server.next("GET", Fault::Refuse(404, "Other", None));
    let error = store.inspect(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[0], Renewed::Extended(_)), "{renewed:?}");
}

/// Somebody has leased the blob: no other version will be accepted either.
#[tokio::test]
async fn a_change_that_the_service_forbids_is_no_change_of_another_client() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    for (code, name) in [(412, "LeaseIdMissing"), (409, "BlobImmutableDueToPolicy")] {
        server.next("PUT", Fault::Refuse(code, name, None));
        let error = store.acquire(&claim("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(format!("{error:?}").contains(name), "{error:?}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_path_is_named_by_a_list() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    server.put("/x", "");
    let error = store.list("").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(format!("{error:?}").contains("//x"), "{error:?}");
}

#[tokio::test]
async fn a_store_shows_nothing_of_its_client() {
    let server = FakeS3::start().await;
    let shown = format!("{:?}", server.client().await);
    assert!(shown.contains(crate::fake::PREFIX), "{shown}");
    assert!(!shown.contains("127.0.0.1"), "{shown}");
}

#[tokio::test]
async fn an_object_of_somebody_else_is_left_alone() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    server.put("a,b", "of somebody else");
    server.put("long", &"x".repeat(5_000));
    for name in ["a/b", "long"] {
        let error = store.acquire(&claim(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    assert_eq!(server.object("a,b").unwrap(), "of somebody else");
    assert_eq!(store.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_list_shows_the_locks_whose_keys_begin_so() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    let grant = granted(&store, &claim("orders/7")).await;
    let _other = granted(&store, &claim("other")).await;
    let listed = store.list("orders/").await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key, key("orders/7"));
    assert_eq!(listed[0].token, Some(grant.token));
    assert!(server.object("orders,7").is_some());
}

#[tokio::test]
async fn a_release_keeps_the_object_and_its_token() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    let first = granted(&store, &claim("a")).await;
    assert!(matches!(store.release(&first).await, Released::Released));
    let text = server.object("a").unwrap();
    assert!(text.contains("state free"), "{text}");
    let other = server.client().await;
    assert!(granted(&other, &claim("a")).await.token > first.token);
    assert_eq!(server.requests("DELETE"), 0);
}

#[tokio::test]
async fn a_manager_holds_renews_and_commits() {
    let server = FakeS3::start().await;
    let locks = LockManager::new(server.client().await).unwrap();
    let done = locks.lock("nightly").guarded(|_tx| Ok(7)).await.unwrap();
    assert_eq!(done.value, 7);
    let capability = locks.capability();
    assert!(!capability.wakes && capability.observes_expiry && capability.revokes);
    locks.shutdown().await;
}
