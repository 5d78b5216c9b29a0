//! A quorum of members that fail: what it survives, and what it must never do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/in_doubt.rs"]
mod in_doubt;
#[path = "../support/over.rs"]
mod over;

mod clocks;
mod crowd;
mod late;
mod members;
mod silence;
mod simulation;
mod terms;
mod withheld;
mod world;
