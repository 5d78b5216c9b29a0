//! API servers for tests: a fake one, and a real one with its etcd.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod api_server;
pub(crate) mod audit;
#[path = "../canary.rs"]
pub(crate) mod canary;
pub(crate) mod fake;
pub(crate) mod kubeconfig;
pub(crate) mod pod;
#[path = "../process.rs"]
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod suite;
