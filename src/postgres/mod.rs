//! [`PostgresStore`]: locks in a PostgreSQL database (feature `postgres`).
#![doc = include_str!("store/PROTOCOL.md")]

mod fence;
pub(crate) mod store;

pub use fence::{PgCommit, PgDone, PgFence, PgStop, PgTransaction};
pub use store::{PostgresOptions, PostgresStore, SCHEMA};
/// The driver of [`PgFence`], whose types are in the signatures of [`PgTransaction`].
pub use tokio_postgres;
