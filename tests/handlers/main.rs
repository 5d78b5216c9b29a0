//! Handlers and observers: the chain, and those that are shipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../examples/support/prometheus.rs"]
mod prometheus;
#[path = "../support/mod.rs"]
mod support;

mod access_log;
mod apart;
mod attached;
mod chain;
#[cfg(feature = "flow-control")]
mod flow_control;
mod metrics;
mod observers;
