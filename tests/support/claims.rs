//! Short words for what every test of a store says.

#![allow(dead_code)] // Each test file uses a part of it.

use std::time::Duration;

use leasehold::Key;
use leasehold::store::{Acquired, Claim, Grant, Label, LockMode, OwnerToken, Released, Store};

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

/// A claim in this mode.
pub(crate) fn queued(text: &str, mode: LockMode) -> Claim {
    let mut claim = claim(text);
    claim.mode = mode;
    claim
}

/// The same for a caller that does not wait: it takes no place.
pub(crate) fn once(mut claim: Claim) -> Claim {
    claim.place_ttl = Duration::ZERO;
    claim
}

/// The grant, or a panic that shows the answer.
pub(crate) async fn grant(store: &impl Store, claim: &Claim) -> Grant {
    match store.acquire(claim).await {
        Ok(Acquired::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// The claim has to wait: somebody holds the lock, or the store grants nothing yet.
pub(crate) async fn is_busy(store: &impl Store, claim: &Claim) -> bool {
    matches!(
        store.acquire(claim).await,
        Ok(Acquired::Busy { .. } | Acquired::NotReady { .. })
    )
}

/// A release that is confirmed.
pub(crate) async fn release(store: &impl Store, grant: &Grant) {
    let released = store.release(grant).await;
    assert!(matches!(released, Released::Released), "{released:?}");
}
