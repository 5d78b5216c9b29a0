//! The store.

mod calls;
mod connection;
mod dialer;
mod fault;
mod link;
mod listener;
mod options;
mod owner;
mod pool;
mod postgres_store;
mod preflight;
mod schema;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub(crate) use dialer::Dialer;
pub(crate) use fault::{FULL, code, not_owned};
pub(crate) use link::{Link, waits};
pub use options::PostgresOptions;
pub use postgres_store::PostgresStore;
pub use schema::SCHEMA;
