//! Every interleaving of the lease word and of the gate, on the very sources that are shipped.
//!
//! `src/lease/words.rs` and `src/lease/runs.rs` import their atomics from `super::atomics`; here
//! that name stands for loom's. The models are small on purpose: two or three threads, a handful of
//! steps, so that all orders of them are tried, the stale reads that the memory model allows
//! included.
//!
//! The clock is an argument of the lease word. Threads that bring different times stand for readers
//! of which one was stalled between its clock read and its look, and for lanes of which one lapses
//! before the others.

#![allow(clippy::unwrap_used, reason = "a failing model is a failing test")]

mod atomics;
mod gate;
mod lease_word;
#[path = "../../../src/lease/runs.rs"]
mod runs;
#[path = "../../../src/lease/words.rs"]
mod words;

use loom::sync::Arc;
use loom::thread::JoinHandle;

/// How often a model may take the processor from a thread that could go on.
const PREEMPTIONS: usize = 2;

/// Runs every order of `model` and fails if there was only one: a model without a race proves
/// nothing.
fn every_order(model: impl Fn() + Send + Sync + 'static) {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let orders = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&orders);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        atomics::begin();
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    assert!(orders > 1, "the model has one order only");
    println!("{orders} orders");
}

/// A thread of the model, with what it shares.
fn beside<T: 'static, R: 'static>(
    shared: &Arc<T>,
    act: impl FnOnce(&T) -> R + 'static,
) -> JoinHandle<R> {
    let shared = Arc::clone(shared);
    loom::thread::spawn(move || act(&shared))
}
