//! Writes whose outcome is not known, writes that arrive late, and two at once.

use std::pin::pin;
use std::task::{Context, Waker};

use leasehold::ErrorKind;
use leasehold::store::{Acquired, Released, Renewed, Store};

use crate::fake::{FakeS3, Fault};
use crate::{claim, granted, key};

#[tokio::test]
async fn a_write_that_the_service_failed_at_is_in_doubt_and_sent_once() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    for (code, name) in [(500, "InternalError"), (503, "SlowDown"), (504, "")] {
        let before = server.requests("PUT");
        server.next("PUT", Fault::Refuse(code, name, Some(0)));
        let error = store.acquire(&claim("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{code}: {error}");
        assert_eq!(server.requests("PUT"), before + 1);
    }
}

#[tokio::test]
async fn an_acquire_that_was_applied_and_not_answered_is_granted_when_asked_again() {
    for fault in [Fault::Swallow, Fault::FailAfter(500), Fault::FailAfter(503)] {
        let server = FakeS3::start().await;
        let store = server.client().await;
        server.next("PUT", fault);
        let claim = claim("a");
        let error = store.acquire(&claim).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
        assert!(server.object("a").unwrap().contains("state held"));
        let again = granted(&store, &claim).await;
        let renewed = store.renew(std::slice::from_ref(&again)).await;
        assert!(matches!(renewed[0], Renewed::Extended(_)));
    }
}

#[tokio::test]
async fn a_renewal_and_a_release_that_were_applied_are_found_to_be_done() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    let grant = granted(&store, &claim("a")).await;
    server.next("PUT", Fault::FailAfter(500));
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    let Renewed::Unknown(error) = &renewed[0] else {
        panic!("{renewed:?}");
    };
    assert_eq!(error.kind(), ErrorKind::InDoubt);
    // The version that this client knows is refused now: it loads, and finds itself.
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[0], Renewed::Extended(_)));
    server.next("PUT", Fault::Swallow);
    assert!(matches!(store.release(&grant).await, Released::Unknown(_)));
    assert!(matches!(store.release(&grant).await, Released::AlreadyGone));
    let _next = granted(&store, &claim("a")).await;
}

#[tokio::test]
async fn a_late_write_of_a_withdrawn_claim_grants_nothing() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    server.next("PUT", Fault::Late);
    let late = claim("a");
    {
        let mut asked = pin!(store.acquire(&late));
        let mut cx = Context::from_waker(Waker::noop());
        // Until the server has the request.
        while server.requests("PUT") == 0 {
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            tokio::task::yield_now().await;
        }
    }
    store.withdraw(&late).await.unwrap();
    let before = server.object("a").unwrap();
    server.deliver();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.object("a").unwrap(), before);
    assert!(!before.contains("state held"), "{before}");
    let other = server.client().await;
    let grant = granted(&other, &claim("a")).await;
    let renewed = other.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[0], Renewed::Extended(_)));
}

#[tokio::test]
async fn of_creates_at_once_one_is_granted() {
    let server = FakeS3::start().await;
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(server.client().await);
    }
    for round in 0..10 {
        let name = format!("a{round}");
        let asked = stores.iter().map(|store| {
            let claim = claim(&name);
            async move { store.acquire(&claim).await.unwrap() }
        });
        let answers = futures_util::future::join_all(asked).await;
        let granted = (answers.iter()).filter(|a| matches!(a, Acquired::Granted(_)));
        assert_eq!(granted.count(), 1, "{answers:?}");
    }
}

#[tokio::test]
async fn every_write_changes_the_version() {
    let server = FakeS3::start().await;
    let store = server.client().await;
    let grant = granted(&store, &claim("a")).await;
    let mut texts = std::collections::HashSet::new();
    for _ in 0..10 {
        texts.insert(server.object("a").unwrap());
        let renewed = store.renew(std::slice::from_ref(&grant)).await;
        assert!(matches!(renewed[0], Renewed::Extended(_)));
    }
    assert_eq!(texts.len(), 10);
    assert_eq!(
        store.inspect(&key("a")).await.unwrap().unwrap().token,
        Some(grant.token)
    );
}
