//! The behaviour suite over every store of this crate, one table of what it came to, and attacks on
//! these stores.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::duplicate_mod,
    reason = "both kinds of servers bring the canary along"
)]

#[path = "../support/over.rs"]
mod over;
#[path = "../support/postgres.rs"]
mod postgres;
#[path = "../support/cutter.rs"]
mod proxy;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/zookeeper.rs"]
mod zookeeper;

mod attacks;
mod broken;
mod can_fail;
mod in_process;
mod keeps_the_contract;
mod on_files;
mod on_postgres;
mod on_redis;
mod on_zookeeper;
