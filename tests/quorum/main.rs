//! A quorum of members that fail: what it bears, and what it must never do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod members;
mod simulation;
mod world;
