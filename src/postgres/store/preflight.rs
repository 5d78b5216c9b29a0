//! What a server reports about itself when a connection is made, and what is refused then.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error as PgError};

use super::options::PostgresOptions;
use super::schema::VERSION;
use crate::model::error::Error;

const HELLO: &str = "SELECT version, max_ttl_ms, loses_writes, has_async_standbys, closed_ms, encoding, life, \
    pg_catalog.to_regprocedure('leasehold.taken(text, boolean)') IS NOT NULL AS knows_shares FROM leasehold.hello($1)";

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) version: i32,
    max_ttl: Duration,
    /// The settings by which it may lose what it confirmed.
    loses_writes: Option<String>,
    pub(super) has_async_standbys: bool,
    /// For how long it grants nothing.
    pub(super) closed_for: Duration,
    /// Of the database.
    pub(super) encoding: String,
    /// Which server, database and tables these are.
    pub(super) life: String,
    /// Whether its functions know shares: those of an earlier schema of this version do not.
    pub(super) knows_shares: bool,
}

impl Server {
    /// `seen`: the [life](Self::life) that this client saw last.
    pub(super) async fn ask(client: &Client, seen: Option<&str>) -> Result<Self, PgError> {
        let row = client
            .query_typed_one(HELLO, &[(&seen, Type::TEXT)])
            .await?;
        let millis = |column| {
            let millis: i64 = row.try_get(column)?;
            Ok::<_, PgError>(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
        };
        Ok(Self {
            version: row.try_get(0)?,
            max_ttl: millis(1)?,
            loses_writes: row.try_get(2)?,
            has_async_standbys: row.try_get(3)?,
            closed_for: millis(4)?,
            encoding: row.try_get(5)?,
            life: row.try_get(6)?,
            knows_shares: row.try_get(7)?,
        })
    }

    /// # Errors
    ///
    /// `Unsupported` for a server that may forget locks, or that has a newer schema; `Invalid` for
    /// an older one, and if other clients use another `max_ttl`.
    pub(super) fn check(&self, options: &PostgresOptions) -> Result<(), Error> {
        let address = &options.address;
        if self.version > VERSION {
            return Err(Error::unsupported(format!(
                "the schema of the locks is of a newer version: address={address} version={} known={VERSION}; use a newer leasehold",
                self.version
            )));
        }
        if self.version < VERSION {
            return Err(Error::invalid(format!(
                "the schema of the locks is of an older version: address={address} version={} needed={VERSION}; while no client runs, drop the tables claim, token, withdrawn and lock_meta, and create the schema again",
                self.version
            )));
        }
        if let Some(settings) = &self.loses_writes {
            return Err(Error::unsupported(format!(
                "a crash of this server may lose locks that it granted: address={address} off={settings:?}; switch the settings on"
            )));
        }
        if self.max_ttl != options.max_ttl {
            return Err(Error::invalid(format!(
                "the clients of this database use max_ttl={:?}, and this one max_ttl={:?}: address={address}; use the same, or change leasehold.lock_meta while no client runs",
                self.max_ttl, options.max_ttl
            )));
        }
        Ok(())
    }
}
