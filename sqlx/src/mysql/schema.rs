//! The tables of the fence, and whether the server does what they need.

use leasehold::fence::sql::mysql;
use leasehold::{Error, ErrorKind};
use sqlx::{MySql, Row};

use super::fault::{self, into_error, not_durable};
use super::text::ask;
use crate::fence::SqlxFence;
use crate::lent::Lent;

/// A refusal of the fence, as no holder sends it.
const REFUSED: &str = "START TRANSACTION; \
     /*M! SET STATEMENT check_constraint_checks = 1 FOR */ INSERT INTO leasehold_txn \
     (txn_id, lock_key, token, state, until, conn, at) VALUES ('', '', 0, 8, 0, 0, UTC_TIMESTAMP(6))";

/// How many of the tables are InnoDB's.
const OF_INNODB: &str = "SELECT COUNT(*) FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND engine = 'InnoDB' AND table_name IN ('leasehold_fence', \
     'leasehold_txn', 'leasehold_swept', 'leasehold_once', 'leasehold_meta')";

const TABLES: i64 = 5;

impl SqlxFence<MySql> {
    /// Creates the tables of the fence
    /// ([`sql::mysql::SCHEMA`](leasehold::fence::sql::mysql::SCHEMA)) in the database of the pool,
    /// unless they exist. Needs the right to create tables; everybody else needs SELECT, INSERT,
    /// UPDATE and DELETE on `leasehold_*`.
    ///
    /// # Errors
    ///
    /// `Denied` if the user may not, `Unavailable` if the server cannot be reached. `Unsupported`
    /// if it may lose a commit that it has answered (`innodb_flush_log_at_trx_commit` and
    /// `sync_binlog` are not 1), ignores `CHECK` (MySQL before 8.0.16), or is a node of a Galera
    /// cluster, where a row lock is local to a node.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let unsupported = |text: &str| Err(Error::new(ErrorKind::Unsupported, text));
        let failed = |error| into_error("create the schema", error);
        let mut connection = Lent::by(self.pool()).await.map_err(failed)?;
        let made = ask(&mut connection, mysql::SCHEMA).await;
        made.rows().map_err(failed)?;
        let durable = ask(&mut connection, mysql::IS_DURABLE).await.row();
        if durable
            .and_then(|row| row.try_get::<i64, _>(0))
            .map_err(failed)?
            != 1
        {
            return Err(not_durable());
        }
        let tables = ask(&mut connection, OF_INNODB).await.row();
        if tables
            .and_then(|row| row.try_get::<i64, _>(0))
            .map_err(failed)?
            != TABLES
        {
            return unsupported(
                "a table of the fence is not of the engine InnoDB, so its rows are not locked; run ALTER TABLE ... ENGINE = InnoDB on the tables leasehold_*",
            );
        }
        let galera = ask(&mut connection, "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'").await;
        for row in galera.rows().map_err(failed)? {
            if row.try_get::<String, _>(1).map_err(failed)? == "ON" {
                return unsupported(
                    "this server is a node of a Galera cluster, where a row lock is local to a node; use a database with one writer",
                );
            }
        }
        // Dropped with its transaction.
        match ask(&mut connection, REFUSED).await.error {
            Some(error) if matches!(fault::number(&error), Some(4025 | 3819)) => Ok(()),
            Some(error) => Err(failed(error)),
            None => unsupported(
                "this server ignores CHECK, by which the fence refuses; use MySQL 8.0.16 or MariaDB 10.5, or newer",
            ),
        }
    }
}
