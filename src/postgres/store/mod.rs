//! The store.

mod calls;
mod connection;
mod dialer;
#[cfg(feature = "tls")]
mod end_point;
mod fault;
mod leaving;
mod link;
mod listener;
#[cfg(feature = "tls")]
mod of_any_name;
mod options;
mod owner;
mod pool;
mod postgres_store;
mod preflight;
mod schema;
mod suspects;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub(crate) use fault::{FULL, code, not_connected, not_owned};
pub(crate) use link::{Link, waits};
pub use options::PostgresOptions;
pub use postgres_store::PostgresStore;
pub use schema::SCHEMA;
