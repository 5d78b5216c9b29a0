//! Who may do what, and credentials that change.

use std::time::Duration;

use leasehold::kubernetes::KubernetesStore;
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::{Error, ErrorKind};

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};
use crate::kubernetes::canary::CANARY;
use crate::{claim, granted};

const TTL: Duration = Duration::from_secs(15);
const ALL: [&str; 5] = ["get", "list", "watch", "create", "update"];

#[tokio::test]
async fn a_service_account_needs_the_five_verbs_and_no_more() {
    let server = ApiServer::start().await;
    let token = server.account("worker", &ALL).await;
    let url = server.url_of("worker", &format!("token: {token}"));
    let store = KubernetesStore::connect(&url).await.unwrap();
    let claim = claim("nightly", TTL);
    let grant = granted(&store, &claim).await;
    let hint = store.subscribe(&claim).await.unwrap();
    assert_eq!(store.list("").await.unwrap().len(), 1);
    assert!(matches!(
        store.renew(std::slice::from_ref(&grant)).await[0],
        Renewed::Extended(_)
    ));
    assert!(matches!(store.release(&grant).await, Released::Released));
    assert_eq!(hint.await, None);
}

/// What a missing verb breaks: its error.
async fn error_of(store: &KubernetesStore, verb: &str) -> Error {
    let held = claim("held", TTL);
    match verb {
        "get" => store.inspect(&held.key).await.unwrap_err(),
        "list" => store.list("").await.unwrap_err(),
        "watch" => store.subscribe(&held).await.unwrap_err(),
        "create" => store.acquire(&claim("new", TTL)).await.unwrap_err(),
        _ => {
            let grant = granted(store, &claim("changed", TTL)).await;
            match store.renew(std::slice::from_ref(&grant)).await.remove(0) {
                Renewed::Unknown(error) => error,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn each_missing_verb_is_named_with_the_role_that_allows_it() {
    let server = ApiServer::start().await;
    for verb in ALL {
        let others: Vec<_> = ALL.into_iter().filter(|other| *other != verb).collect();
        let token = server.account(&format!("no-{verb}"), &others).await;
        let url = server.url_of(verb, &format!("token: {token}"));
        let store = KubernetesStore::connect(&url).await.unwrap();
        let error = error_of(&store, verb).await;
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Denied, "{verb}: {error}");
        let message = error.to_string();
        assert!(message.contains(&format!("verb={verb} ")), "{message}");
        assert!(
            message.contains(&format!("kubectl -n {NAMESPACE} create role")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_named() {
    let server = ApiServer::start().await;
    let url = server.url().replace("k8s://shop", "k8s://nowhere");
    let store = KubernetesStore::connect(&url).await.unwrap();
    let error = store.acquire(&claim("a", TTL)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("namespace=nowhere"), "{error}");
}

#[tokio::test]
async fn wrong_credentials_are_denied_at_the_connect() {
    let server = ApiServer::start().await;
    let url = server.url_of("nobody", &format!("token: {CANARY}-wrong"));
    let error = KubernetesStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_token_that_is_replaced_in_its_file_costs_no_hold() {
    let server = ApiServer::start().await;
    let (old, new) = (format!("{CANARY}-old"), format!("{CANARY}-new"));
    let file = server.folder().join("token");
    let masters = "system:masters";
    server.set_tokens(&[("pod", &old, masters)]);
    server.kill();
    server.start_again().await;
    std::fs::write(&file, &old).unwrap();
    let url = server.url_of("pod", &format!("tokenFile: {}", file.display()));
    let store = KubernetesStore::connect(&url).await.unwrap();
    let grant = granted(&store, &claim("a", Duration::from_secs(600))).await;

    std::fs::write(&file, &new).unwrap();
    server.set_tokens(&[("pod", &new, masters)]);
    server.kill();
    server.start_again().await;
    // The client would read the file again only a minute after it did so last.
    assert!(matches!(
        store.renew(std::slice::from_ref(&grant)).await[0],
        Renewed::Extended(_)
    ));
    let other = claim("b", TTL);
    assert!(matches!(
        store.acquire(&other).await.unwrap(),
        Acquired::Granted(_)
    ));
}
