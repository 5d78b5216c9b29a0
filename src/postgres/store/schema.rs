//! The schema: its text, and how a client creates it.

use std::time::Duration;

use tokio_postgres::Client;

use super::fault;
use super::options::PostgresOptions;
use crate::model::error::Error;

/// The tables and functions of the store, in the schema `leasehold`, for PostgreSQL 13 and newer.
/// Run it as the owner, in one transaction. It may be run again. It fails if anything in that
/// schema belongs to another role, except a superuser: its owner's code would run with the rights
/// of every role that calls it.
pub const SCHEMA: &str = concat!(
    "CREATE SCHEMA IF NOT EXISTS leasehold;\n",
    include_str!("../../fence/sql/owned.sql"),
    include_str!("schema.sql"),
    include_str!("../../fence/sql/private.sql")
);

/// Fails with `LH006` if the calling role, or a superuser, is not the owner of all that is in the
/// schema.
pub(super) const OWNED: &str = include_str!("../../fence/sql/owned.sql");

/// The version of [`SCHEMA`].
pub(super) const VERSION: i32 = 4;

/// Creates the schema, unless that was done. Clients that do so at once take turns.
/// The caller waits for `limit`, and the server not much longer.
pub(super) async fn create(
    client: &Client,
    options: &PostgresOptions,
    limit: Duration,
) -> Result<(), Error> {
    let millis = options.max_ttl.as_millis();
    // The default isolation may be another, in which the second would not see what the first did.
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {}; SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('leasehold'));",
        limit.as_millis() + 1_000
    );
    let begun = client.batch_execute(&begin).await;
    begun.map_err(|error| fault::not_connected("create the schema", options, error))?;
    let created = async {
        let is_new = "SELECT pg_catalog.to_regclass('leasehold.lock_meta') IS NULL";
        let is_new: bool = client.query_typed_one(is_new, &[]).await?.try_get(0)?;
        client.batch_execute(SCHEMA).await?;
        if is_new {
            let agreed = format!("UPDATE leasehold.lock_meta SET max_ttl = '{millis} ms'");
            client.batch_execute(&agreed).await?;
        }
        client.batch_execute("COMMIT").await
    };
    created
        .await
        .map_err(|error| fault::not_connected("create the schema", options, error))
}
