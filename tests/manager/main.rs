//! The manager on the memory store and the manual clock: acquiring, holding, ending, handing off.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/bare_thread.rs"]
mod bare_thread;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/yielding.rs"]
mod yielding;

mod acquire;
mod by_chance;
mod clocks;
mod end_of_hold;
mod ends;
mod exclusion;
mod handoff;
mod health;
mod hints;
mod hold;
mod late;
mod local_turns;
mod logs;
mod own_runs;
mod proofs;
mod readiness;
mod reads;
mod spans;
mod steps;
mod task_order;
mod unpolled;
mod withheld;
