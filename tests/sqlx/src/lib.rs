//! The SQL fence over sqlx: how to send the statements of [`leasehold::fence::sql`] with a driver
//! of your own.
//!
//! Copy what you need. The crate has no code for sqlx, because a type of sqlx in its signatures
//! would tie their versions together.

pub mod postgres;
pub mod sqlite;

use futures_util::future::BoxFuture;

/// What the work of a transaction returns: it borrows the connection.
pub type Work<'c> = BoxFuture<'c, sqlx::Result<()>>;
