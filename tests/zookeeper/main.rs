//! The ZooKeeper store and its fence against real servers, which the tests start, stop and kill
//! themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/shards.rs"]
mod crew;
#[path = "../support/no_threads.rs"]
mod no_threads;
#[path = "../support/passing_on.rs"]
mod passing_on;
#[path = "../support/peer.rs"]
mod peer;
#[path = "../support/permits.rs"]
mod pool;
#[path = "../support/cutter.rs"]
mod proxy;
#[path = "../support/rotation.rs"]
mod rotation_of;
#[path = "../support/shard_faults.rs"]
mod shard_faults;
#[path = "../support/zookeeper.rs"]
mod zookeeper;

mod by_hand;
mod connection;
mod crowd;
mod doubt;
mod faults;
mod fence;
mod interop;
mod kinds;
mod manager;
mod overlap;
mod peers;
mod permits;
mod proof;
mod queue;
mod revoke;
mod rotation;
mod shards;
mod withheld;
