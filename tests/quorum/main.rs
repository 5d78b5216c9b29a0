//! A quorum of members that fail: what it bears, and what it must never do.

mod clocks;
mod members;
mod simulation;
mod world;
