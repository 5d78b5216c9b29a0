//! The fence on real PostgreSQL servers, which these tests start and end.
#![allow(clippy::unwrap_used)]

#[path = "../support/canary.rs"]
mod canary;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/postgres.rs"]
mod server;

mod commit;
mod doubt;
mod isolation;
mod raise;
mod several;
mod truth;
mod world;
mod zombie;
