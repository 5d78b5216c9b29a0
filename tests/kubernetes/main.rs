//! Locks in Leases, on a fake API server. The same on a real one, and what only a real one shows,
//! is in `tests/kubernetes_server`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/kubernetes/mod.rs"]
mod kubernetes;

mod answers;
mod cluster;
mod fence;
mod login;
mod suite;
mod waiting;
