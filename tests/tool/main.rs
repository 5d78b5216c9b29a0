//! The tool, as people and scripts use it: real processes, a real Redis server, a real terminal.
#![allow(clippy::unwrap_used)]

#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/zookeeper.rs"]
mod zookeeper;

mod command;
mod counter;
mod ends;
mod kinds;
mod looks;
mod run;
mod terminal;
