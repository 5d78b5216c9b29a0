//! Short words for what every test of a store says.

#![allow(dead_code)] // Each test file uses a part of it.

use std::time::Duration;

use leasehold::store::{Acquired, Claim, Grant, Released, Store};
use leasehold::{Clock, Key, Label, OwnerToken};

pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

pub(crate) fn claim(text: &str) -> Claim {
    claim_for(text, TTL)
}

pub(crate) fn claim_for(text: &str, ttl: Duration) -> Claim {
    let label = Label::parse("a test").unwrap();
    Claim::new(key(text), OwnerToken::generate().unwrap(), label, ttl)
}

/// The grant, or a panic that shows the answer.
pub(crate) async fn grant(store: &impl Store, claim: &Claim) -> Grant {
    match store.acquire(claim).await {
        Ok(Acquired::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// The grant of a key that is free, or free as soon as what a lost attempt had sent is taken back. Real time, because that
/// is on its way through real servers.
pub(crate) async fn grant_soon(store: &impl Store, claim: &Claim) -> Grant {
    let clock = Clock::system().unwrap();
    for _ in 0..100 {
        if let Ok(Acquired::Granted(grant)) = store.acquire(claim).await {
            return grant;
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    grant(store, claim).await
}

pub(crate) async fn is_busy(store: &impl Store, claim: &Claim) -> bool {
    matches!(store.acquire(claim).await, Ok(Acquired::Busy { .. }))
}

/// A release that is confirmed.
pub(crate) async fn release(store: &impl Store, grant: &Grant) {
    let released = store.release(grant).await;
    assert!(matches!(released, Released::Released), "{released:?}");
}
