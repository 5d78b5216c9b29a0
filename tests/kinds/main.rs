//! Every kind of lock, on the memory store and the manual clock.
#![allow(clippy::unwrap_used)]

#[path = "../support/bare_thread.rs"]
mod bare_thread;
mod election;
mod fair;
mod multi;
mod no_runtime;
mod operators;
#[path = "../support/plain.rs"]
mod plain;
mod read_write;
mod reentrant;
mod retry;
mod semaphore;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
mod yielding;
