//! Every kind of lock, on the memory store and the manual clock.
#![allow(clippy::unwrap_used)]

#[path = "../support/bare_thread.rs"]
mod bare_thread;
#[path = "../support/shards.rs"]
mod crew;
mod crowd;
#[path = "../sim/dice.rs"]
#[allow(dead_code, reason = "the simulation throws them in more ways")]
mod dice;
mod election;
mod exits;
mod extremes;
mod fair;
mod guards;
mod joint;
mod leftovers;
mod multi;
mod no_runtime;
#[path = "../support/no_threads.rs"]
mod no_threads;
mod once;
mod once_hosts;
mod operators;
mod passing_on;
mod permits;
#[path = "../support/plain.rs"]
mod plain;
mod purpose;
mod read_write;
mod reentrant;
mod reentrant_read_write;
mod rest;
mod retry;
mod semaphore;
mod shards;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
#[path = "../support/yielding.rs"]
mod yielding;
