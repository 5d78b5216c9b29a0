//! The API server is killed, and its etcd stops.

use std::time::Duration;

use leasehold::kubernetes::KubernetesStore;
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::{ErrorKind, LockManager};

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};
use crate::{claim, granted};

const TTL: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_hold_survives_the_end_of_the_api_server() {
    let server = ApiServer::start().await;
    let (ours, theirs) = (
        KubernetesStore::connect(&server.url()).await.unwrap(),
        KubernetesStore::connect(&server.url()).await.unwrap(),
    );
    let grant = granted(&ours, &claim("a", TTL)).await;
    let hint = theirs.subscribe(&claim("a", TTL)).await.unwrap();
    server.kill();
    let refused = ours.renew(std::slice::from_ref(&grant)).await.remove(0);
    assert!(matches!(refused, Renewed::Unknown(_)), "{refused:?}");
    let error = theirs.acquire(&claim("a", TTL)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.start_again().await;
    assert!(matches!(
        ours.renew(std::slice::from_ref(&grant)).await[0],
        Renewed::Extended(_)
    ));
    let busy = theirs.acquire(&claim("a", TTL)).await.unwrap();
    assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
    // The watch is resumed.
    assert!(matches!(ours.release(&grant).await, Released::Released));
    assert_eq!(hint.await, None);
    let next = granted(&theirs, &claim("a", TTL)).await;
    assert!(next.token > grant.token);
}

#[tokio::test]
async fn a_write_while_etcd_stands_still_is_in_doubt_and_grants_once() {
    let server = ApiServer::start().await;
    let (ours, theirs) = (
        KubernetesStore::connect(&server.url()).await.unwrap(),
        KubernetesStore::connect(&server.url()).await.unwrap(),
    );
    let claim = claim("a", TTL);
    server.stop_etcd();
    let clock = leasehold::clock::Clock::system().unwrap();
    // As a manager does: it gives a request up by dropping it.
    let given_up = clock
        .timeout(Duration::from_secs(2), ours.acquire(&claim))
        .await;
    assert!(given_up.is_none_or(|answer| answer.is_err()));
    server.continue_etcd();
    server.ready().await;
    // The dropped write may be there or not: asked again it is one grant.
    let grant = granted(&ours, &claim).await;
    let again = granted(&ours, &claim).await;
    assert_eq!(again.token, grant.token);
    let other = crate::claim("a", TTL);
    assert!(matches!(
        theirs.acquire(&other).await.unwrap(),
        Acquired::Busy { .. }
    ));
    theirs.withdraw(&other).await.unwrap();
    assert!(matches!(
        ours.renew(std::slice::from_ref(&again)).await[0],
        Renewed::Extended(_)
    ));
}

#[tokio::test]
async fn a_manager_takes_turns_with_another_over_the_url() {
    let server = ApiServer::start().await;
    let (ours, theirs) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    let mut last = None;
    for turn in 0..20 {
        let locks = if turn % 2 == 0 { &ours } else { &theirs };
        let guard = locks.lock("accounts/7").acquire().await.unwrap();
        let token = guard.token();
        assert!(last < Some(token), "tokens grow");
        last = Some(token);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_that_somebody_deleted_is_gone_and_tokens_grow() {
    let server = ApiServer::start().await;
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    let grant = granted(&store, &claim("a", TTL)).await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/a");
    let (code, body) = server.send("DELETE", &path, None).await;
    assert_eq!(code, 200, "{body}");
    let renewed = store.renew(std::slice::from_ref(&grant)).await.remove(0);
    assert!(matches!(renewed, Renewed::Gone), "{renewed:?}");
    let next = granted(&store, &claim("a", TTL)).await;
    assert!(next.token > grant.token);
}
