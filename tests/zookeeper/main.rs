//! The ZooKeeper store and its fence against real servers, which the tests start, stop and kill themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/cutter.rs"]
mod proxy;
#[path = "../support/zookeeper.rs"]
mod zookeeper;

mod connection;
mod faults;
mod fence;
mod interop;
mod kinds;
mod manager;
mod peers;
mod proof;
mod queue;
mod revoke;
mod withheld;
