//! Guarded runs: every outcome, every way to end, undo, cells.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/executor.rs"]
mod executor_support;

mod both_kinds;
mod cells;
mod chains;
mod drops;
mod end;
mod explore;
mod newer_holder;
mod outcomes;
mod panicking_drops;
mod panicking_subscriber;
mod refused;
mod undo;
