//! Locks in Leases of a real API server, which `build-apiserver.sh` in this folder builds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/kubernetes/mod.rs"]
mod kubernetes;

mod deployment;
mod faults;
mod fence;
mod fidelity;
mod pods;
mod rights;
mod rollout;
mod squeeze;
mod suite;
mod turns;

use std::time::Duration;

use leasehold::Key;
use leasehold::kubernetes::KubernetesStore;
use leasehold::store::{Acquired, Claim, Grant, Label, OwnerToken, Store};

fn claim(key: &str, ttl: Duration) -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("host-a").unwrap();
    Claim::new(Key::parse(key).unwrap(), owner, label, ttl)
}

async fn granted(store: &KubernetesStore, claim: &Claim) -> Grant {
    match store.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}
