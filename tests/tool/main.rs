//! The tool, as people and scripts use it: real processes, a real Redis server, a real terminal.
#![allow(clippy::unwrap_used)]

#[path = "../support/redis.rs"]
mod redis;

mod command;
mod counter;
mod ends;
mod looks;
mod run;
mod terminal;
