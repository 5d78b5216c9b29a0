//! What the store makes of the API server's answers.

use std::time::Duration;

use k8s_openapi::serde_json::json;
use leasehold::kubernetes::KubernetesStore;
use leasehold::store::{Acquired, Claim, Grant, Label, OwnerToken, Released, Renewed, Store};
use leasehold::{ErrorKind, Key, LockManager, Settings};

use crate::kubernetes::fake::{FakeApiServer, Fault};
use crate::kubernetes::raw;

const TTL: Duration = Duration::from_secs(15);

pub(crate) fn claim(key: &str) -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("host-a").unwrap();
    Claim::new(Key::parse(key).unwrap(), owner, label, TTL)
}

pub(crate) async fn granted(store: &KubernetesStore, claim: &Claim) -> Grant {
    match store.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

async fn world() -> (FakeApiServer, KubernetesStore) {
    let server = FakeApiServer::start().await;
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    (server, store)
}

#[tokio::test]
async fn a_pause_that_the_server_asks_for_is_kept_and_the_request_sent_again() {
    let (server, store) = world().await;
    server.next("create", Fault::Refuse(429, Some(1)));
    let before = leasehold::clock::Clock::system().unwrap().stamp();
    let _grant = granted(&store, &claim("a")).await;
    let after = leasehold::clock::Clock::system().unwrap().stamp();
    assert!(after.since(&before).as_millis() >= 1_000);
    assert_eq!(server.requests("create"), 2);
}

#[tokio::test]
async fn a_server_that_always_asks_to_wait_is_unavailable_and_has_done_nothing() {
    let (server, store) = world().await;
    for _ in 0..4 {
        server.next("create", Fault::Refuse(429, Some(0)));
    }
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(server.lease("a"), None);
}

#[tokio::test]
async fn a_write_that_the_server_failed_at_is_in_doubt_and_sent_once() {
    let (server, store) = world().await;
    for code in [500, 503, 504] {
        let before = server.requests("create");
        server.next("create", Fault::Refuse(code, Some(0)));
        let error = store.acquire(&claim("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{code}: {error}");
        assert_eq!(server.requests("create"), before + 1);
    }
}

#[tokio::test]
async fn a_read_that_the_server_failed_at_is_sent_again_when_it_says_when() {
    let (server, store) = world().await;
    server.next("get", Fault::Refuse(503, Some(0)));
    assert_eq!(
        store.inspect(&Key::parse("a").unwrap()).await.unwrap(),
        None
    );
    server.next("get", Fault::Refuse(500, None));
    let error = store.inspect(&Key::parse("a").unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn an_acquire_without_an_answer_is_in_doubt_and_granted_when_asked_again() {
    let (server, store) = world().await;
    server.next("create", Fault::Swallow);
    let claim = claim("a");
    let error = store.acquire(&claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    let again = granted(&store, &claim).await;
    assert!(matches!(
        store.renew(std::slice::from_ref(&again)).await[0],
        Renewed::Extended(_)
    ));
}

#[tokio::test]
async fn credentials_are_read_again_when_they_are_refused() {
    let (server, store) = world().await;
    server.next("create", Fault::Refuse(401, None));
    let _grant = granted(&store, &claim("a")).await;
    for _ in 0..2 {
        server.next("update", Fault::Refuse(401, None));
    }
    let error = store.withdraw(&claim("b")).await.err();
    assert!(error.is_none(), "{error:?}");
    let grant = granted(&store, &claim("c")).await;
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    let Renewed::Unknown(error) = &renewed[0] else {
        panic!("{renewed:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_release_that_is_refused_while_the_credentials_change_is_sent_again() {
    let server = FakeApiServer::start().await;
    let mut settings = Settings::default();
    // No end by itself is waited for.
    settings.ttl = Duration::from_secs(600);
    settings.max_ttl = settings.ttl;
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    let locks = LockManager::builder(store).settings(settings);
    let guard = locks.build().unwrap().lock("a").acquire().await.unwrap();
    // The first attempt and the one after it, each with the credentials that were read again.
    for _ in 0..4 {
        server.next("update", Fault::Refuse(401, None));
    }
    guard.release().await.unwrap_err();
    let clock = leasehold::clock::Clock::system().unwrap();
    let is_free = || server.lease("a").unwrap()["spec"]["holderIdentity"] == "";
    for _ in 0..1_000 {
        if is_free() {
            break;
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    assert!(is_free());
}

#[tokio::test]
async fn a_token_is_larger_after_somebody_took_our_annotations_away() {
    let (server, store) = world().await;
    let first = granted(&store, &claim("a")).await;
    assert!(matches!(store.release(&first).await, Released::Released));
    let client = raw::client(&server.folder().join("kubeconfig")).await;
    let mut lease = server.lease("a").unwrap();
    lease["metadata"]["annotations"] = json!({});
    let path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/a";
    raw::send(&client, "PUT", path, Some(lease)).await.unwrap();
    let other = KubernetesStore::connect(&server.url()).await.unwrap();
    assert!(granted(&other, &claim("a")).await.token > first.token);
}

#[tokio::test]
async fn what_is_forbidden_names_the_verb_and_the_role() {
    let (server, store) = world().await;
    server.next("create", Fault::Refuse(403, None));
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let message = error.to_string();
    assert!(
        message.contains("verb=create resource=leases namespace=shop"),
        "{message}"
    );
    assert!(
        message.contains("create role leasehold --verb=get,list,watch,create,update"),
        "{message}"
    );
}

#[tokio::test]
async fn every_write_changes_the_version() {
    let (server, store) = world().await;
    let grant = granted(&store, &claim("a")).await;
    let mut versions = std::collections::HashSet::new();
    for _ in 0..10 {
        let lease = server.lease("a").unwrap();
        versions.insert(lease["metadata"]["resourceVersion"].to_string());
        assert!(matches!(
            store.renew(std::slice::from_ref(&grant)).await[0],
            Renewed::Extended(_)
        ));
    }
    assert_eq!(versions.len(), 10);
}

#[tokio::test]
async fn a_release_wakes_whoever_waits() {
    let (_server, store) = world().await;
    let grant = granted(&store, &claim("a")).await;
    let hint = store.subscribe(&claim("a")).await.unwrap();
    assert!(matches!(store.release(&grant).await, Released::Released));
    assert_eq!(hint.await, None);
}

#[tokio::test]
async fn a_watch_that_the_server_has_forgotten_goes_on() {
    let (server, store) = world().await;
    let grant = granted(&store, &claim("a")).await;
    let hint = store.subscribe(&claim("a")).await.unwrap();
    server.forget_versions();
    assert!(matches!(store.release(&grant).await, Released::Released));
    assert_eq!(hint.await, None);
}

/// A proxy may end each watch at once.
#[tokio::test]
async fn a_watch_that_ends_again_and_again_is_resumed_less_and_less_often() {
    let (server, store) = world().await;
    let _grant = granted(&store, &claim("a")).await;
    let _hint = store.subscribe(&claim("a")).await.unwrap();
    let clock = leasehold::clock::Clock::system().unwrap();
    for _ in 0..200 {
        server.forget_versions();
        clock.sleep(Duration::from_millis(10)).await;
    }
    let asked = server.requests("watch");
    assert!((2..20).contains(&asked), "{asked}");
}

#[tokio::test]
async fn a_watch_that_is_forbidden_is_an_error_and_the_caller_polls() {
    let (server, store) = world().await;
    server.next("watch", Fault::Refuse(403, None));
    let error = store.subscribe(&claim("a")).await.unwrap_err();
    assert!(error.to_string().contains("verb=watch"), "{error}");
}

#[tokio::test]
async fn a_watch_that_is_refused_for_too_many_requests_pauses_every_request() {
    let (server, store) = world().await;
    server.next("watch", Fault::Refuse(429, Some(2)));
    let clock = leasehold::clock::Clock::system().unwrap();
    let before = clock.stamp();
    store.subscribe(&claim("a")).await.unwrap_err();
    let _grant = granted(&store, &claim("b")).await;
    assert!(clock.stamp().since(&before) >= Duration::from_secs(2));
}

#[tokio::test]
async fn callers_of_one_key_share_a_watch() {
    let (server, store) = world().await;
    let grant = granted(&store, &claim("a")).await;
    let mut hints = Vec::new();
    for _ in 0..20 {
        hints.push(store.subscribe(&claim("a")).await.unwrap());
    }
    assert_eq!(server.requests("watch"), 1);
    assert!(matches!(store.release(&grant).await, Released::Released));
    for hint in hints {
        assert_eq!(hint.await, None);
    }
}

#[tokio::test]
async fn a_list_is_one_request_for_500_locks() {
    let (server, store) = world().await;
    let mut grants = Vec::new();
    for number in 0..600 {
        grants.push(granted(&store, &claim(&format!("orders/{number}"))).await);
    }
    let _other = granted(&store, &claim("other")).await;
    let listed = store.list("orders/").await.unwrap();
    assert_eq!(listed.len(), 600);
    assert_eq!(server.requests("list"), 2);
    assert_eq!(listed[0].label.as_ref().unwrap().as_str(), "host-a");
    assert_eq!(listed[0].token, Some(grants[0].token));
}

#[tokio::test]
async fn the_store_outlives_the_runtime_that_opened_it() {
    let server = FakeApiServer::start().await;
    let url = server.url();
    let store = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(KubernetesStore::connect(&url)).unwrap()
    });
    let store = tokio::task::spawn_blocking(|| store.join().unwrap())
        .await
        .unwrap();
    let _grant = granted(&store, &claim("a")).await;
    store.close().await.unwrap();
    let error = store.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}
