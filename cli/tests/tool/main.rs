//! The tool, as people and scripts use it: real processes, a real Redis server, a real terminal.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::duplicate_mod,
    reason = "both kinds of servers bring the canary along"
)]

#[path = "../../../tests/support/peer.rs"]
mod peer;
#[path = "../../../tests/support/postgres.rs"]
mod postgres;
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
#[path = "../../../tests/support/redis.rs"]
mod redis;
#[path = "../../../tests/support/zookeeper.rs"]
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
#[cfg(target_os = "linux")]
mod lease_readers;
mod looks;
mod migrations;
mod once;
mod options;
mod peers;
mod postgres_store;
mod resolve;
mod rests;
mod revocations;
mod run;
mod same_line;
#[cfg(target_os = "linux")]
mod shortages;
mod starts;
mod step_down;
mod streams;
mod terminal;
#[cfg(target_os = "linux")]
mod users;
