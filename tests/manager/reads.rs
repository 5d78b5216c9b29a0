//! What is read under a lease is served only while the lease is live.
use std::cell::Cell;

use leasehold::{Ended, LeaseError};

use crate::support::{World, secs};

#[tokio::test]
async fn a_value_that_was_read_under_a_live_lease_is_returned() {
    let world = World::new();
    let held = world.ours.lock("a").acquire().await.unwrap();
    let read = held.lease().read(async || {
        world.pass(secs(2)).await;
        7
    });
    assert_eq!(read.await, Ok(7));
}

#[tokio::test]
async fn a_reader_that_was_stopped_does_not_serve_the_value_of_before_the_next_holder() {
    let world = World::new();
    let value = Cell::new("ours");
    let held = world.ours.lock("a").acquire().await.unwrap();
    let read = held.lease().read(async || {
        let seen = value.get();
        // The whole process is stopped here: no heartbeat leaves.
        world.clock.advance(secs(60));
        let theirs = world.theirs.lock("a").try_acquire().await.unwrap();
        let _theirs = theirs.expect("the ttl is over");
        value.set("theirs");
        seen
    });
    assert_eq!(read.await, Err(LeaseError::Lost(Ended::Lapsed)));
    assert_eq!(value.get(), "theirs");
}

#[tokio::test]
async fn nothing_is_read_under_a_lease_that_is_over() {
    let world = World::new();
    let held = world.ours.lock("a").acquire().await.unwrap();
    let lease = held.lease().clone();
    held.release().await.unwrap();
    let read = lease.read(async || unreachable!("the lease is over"));
    let nothing: Result<(), _> = read.await;
    assert_eq!(nothing, Err(LeaseError::Lost(Ended::Released)));
}
