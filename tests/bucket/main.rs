//! Locks in a bucket: the contract in memory, and faults on a fake S3. The same on real servers is
//! in `tests/bucket_server`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/canary.rs"]
mod canary;

mod answers;
mod fake;
mod opening;
mod suite;
mod writes;

use std::time::Duration;

use leasehold::Key;
use leasehold::bucket::BucketStore;
use leasehold::store::{Acquired, Claim, Grant, Label, OwnerToken, Store};

const TTL: Duration = Duration::from_secs(30);

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn claim(name: &str) -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("host-a").unwrap();
    Claim::new(key(name), owner, label, TTL)
}

async fn granted(store: &BucketStore, claim: &Claim) -> Grant {
    match store.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}
