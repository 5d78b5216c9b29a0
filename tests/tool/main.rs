//! The tool, as people and scripts use it: real processes, a real Redis server, a real terminal.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::duplicate_mod,
    reason = "both kinds of servers bring the canary along"
)]

#[path = "../support/peer.rs"]
mod peer;
#[path = "../support/postgres.rs"]
mod postgres;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/zookeeper.rs"]
mod zookeeper;

mod check;
mod command;
mod counter;
mod ends;
mod files;
#[cfg(target_os = "linux")]
mod flock;
#[cfg(target_os = "linux")]
mod habits;
mod kinds;
#[cfg(target_os = "linux")]
mod lease_files;
mod looks;
mod options;
mod peers;
mod postgres_store;
mod resolve;
mod rests;
mod run;
mod same_line;
mod starts;
mod streams;
mod terminal;
#[cfg(target_os = "linux")]
mod users;
