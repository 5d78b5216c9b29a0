//! What is checked before a bucket keeps a lock.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::bucket::BucketStore;
use leasehold::bucket::object_store::memory::InMemory;
use leasehold::clock::Clock;
use leasehold::store::Store;

use crate::fake::{FakeS3, Fault};
use crate::{claim, granted};

async fn refused(server: &FakeS3) -> leasehold::Error {
    let opened = BucketStore::open(server.options(), Clock::system().unwrap());
    opened.await.unwrap_err()
}

#[tokio::test]
async fn a_service_that_compares_no_versions_is_refused_and_nothing_stays() {
    for (ignores_create, ignores_update) in [(true, false), (false, true), (true, true)] {
        let server = FakeS3::careless(ignores_create, ignores_update).await;
        let error = refused(&server).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("conditional writes"), "{error}");
        assert_eq!(server.names(), [""; 0]);
    }
}

#[tokio::test]
async fn the_object_of_the_check_is_removed() {
    let server = FakeS3::start().await;
    let _store = server.client().await;
    assert_eq!(server.names(), [""; 0]);
}

#[tokio::test]
async fn a_bucket_whose_objects_may_not_be_deleted_is_taken() {
    let server = FakeS3::start().await;
    server.next("DELETE", Fault::Refuse(403, "AccessDenied", None));
    let store = server.client().await;
    let _grant = granted(&store, &claim("a")).await;
}

#[tokio::test]
async fn processes_that_start_together_all_open_the_bucket() {
    let server = FakeS3::start().await;
    let opened: Vec<_> = (0..8).map(|_| server.client()).collect();
    assert_eq!(futures_util::future::join_all(opened).await.len(), 8);
}

#[tokio::test]
async fn a_bucket_that_is_missing_or_forbidden_says_what_to_do() {
    for (code, name, kind, what) in [
        (404, "NoSuchBucket", ErrorKind::Invalid, "create it"),
        (403, "AccessDenied", ErrorKind::Denied, "s3:ListBucket"),
        (301, "PermanentRedirect", ErrorKind::Invalid, "region="),
        (403, "RequestTimeTooSkewed", ErrorKind::Denied, "clock"),
        (400, "ExpiredToken", ErrorKind::Denied, "expired"),
    ] {
        let server = FakeS3::start().await;
        server.next("GET", Fault::Refuse(code, name, None));
        let error = refused(&server).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        let shown = format!("{error} {error:?}");
        assert!(!crate::canary::is_in(shown.as_bytes()), "{shown}");
    }
}

#[tokio::test]
async fn a_right_to_write_that_is_missing_is_denied() {
    let server = FakeS3::start().await;
    server.next("PUT", Fault::Refuse(403, "AccessDenied", None));
    let error = refused(&server).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("s3:PutObject"), "{error}");
}

#[tokio::test]
async fn a_check_that_is_not_answered_leaves_nothing_in_doubt() {
    for fault in [Fault::Swallow, Fault::Refuse(500, "InternalError", None)] {
        let server = FakeS3::start().await;
        server.next("PUT", fault);
        assert_eq!(refused(&server).await.kind(), ErrorKind::Unavailable);
        assert_eq!(server.names(), [""; 0]);
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_unavailable() {
    let server = FakeS3::start().await;
    let mut options = server.options();
    options.endpoint = Some("http://127.0.0.1:1".to_owned());
    let opened = BucketStore::open(options, Clock::system().unwrap());
    let error = opened.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_prefix_that_is_no_path_is_refused() {
    for prefix in ["", "/", "a//b", "../a"] {
        let over = BucketStore::over(Arc::new(InMemory::new()), prefix, Clock::system().unwrap());
        assert_eq!(
            over.await.unwrap_err().kind(),
            ErrorKind::Invalid,
            "{prefix}"
        );
    }
}

#[tokio::test]
async fn the_store_outlives_the_runtime_that_opened_it() {
    let server = FakeS3::start().await;
    let options = server.options();
    let store = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let opened = BucketStore::open(options, Clock::system().unwrap());
        runtime.block_on(opened).unwrap()
    });
    let store = tokio::task::spawn_blocking(|| store.join().unwrap());
    let store = store.await.unwrap();
    let _grant = granted(&store, &claim("a")).await;
    store.close().await.unwrap();
}
