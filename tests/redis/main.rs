//! The Redis store and its fence against real servers, which the tests start, stop and kill themselves.

#![cfg(feature = "redis")]

#[path = "../support/claims.rs"]
mod claims;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/redis.rs"]
mod server;

mod access;
mod conformance;
mod faults;
mod restart;
mod store;
