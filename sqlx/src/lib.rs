//! Transactions of [sqlx](https://docs.rs/sqlx) that commit only while their lease of
//! [`leasehold`] is the newest: [`SqlxFence`], over a pool of your own.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::LockManager;
//! use leasehold_sqlx::SqlxFence;
//! use sqlx::PgPool;
//!
//! let url = "postgres://app@127.0.0.1/bank";
//! let pool = PgPool::connect(url).await?;
//! let fence = SqlxFence::new(pool)?;
//! fence.create_schema().await?; // once, as the owner of the data
//! let locks = LockManager::connect("redis://127.0.0.1").await?;
//! // The manager raises the fence before it returns a guard.
//! let lock = locks.lock("accounts/7").fence(fence.clone());
//! let transfer = lock.commit(fence.transaction(|tx| {
//!     Box::pin(async move {
//!         let take = "UPDATE account SET cents = cents - $1
//!             WHERE id = 7 RETURNING cents";
//!         let take = sqlx::query_scalar(take).bind(10_i64);
//!         let left: i64 = take.fetch_one(&mut **tx).await?;
//!         if left < 0 {
//!             // Rolled back: RunError::RolledBack, Cause::Failed.
//!             return Err("not enough money".into());
//!         }
//!         Ok(left) // Committed { value: left, proof: Fenced }
//!     })
//! }));
//! println!("{} cents are left", transfer.await?.value);
//! # Ok(())
//! # }
//! ```
//!
//! # Databases
//!
//! | database | feature | what orders a commit and the next holder | who compares the commit with the end of the lease |
//! |---|---|---|---|
//! | MariaDB 10.5, MySQL 8.0.16 and newer | `mysql` | the fence's row, locked to the end of the transaction | the server, when it begins the last statement before `COMMIT`, in one request with it |
//! | PostgreSQL 13 and newer | `postgres` | the fence's row, locked to the end of the transaction | the server, inside of `COMMIT` |
//! | SQLite 3.24 and newer | `sqlite` | one writer at a time | this process, inside of `COMMIT` |
//!
//! How they do it, and what they do not close: [`leasehold::docs::sql`]. A file of SQLite, not a
//! database in memory: that is gone with its connection, and the fence closes some. The tests run
//! on MariaDB 10.11; on MySQL nothing was run.
//!
//! # Outcomes
//!
//! | event | outcome |
//! |---|---|
//! | no connection, `BEGIN` fails, your statement fails, your work refuses | `RolledBack` |
//! | the connection is lost during your work | SQLite: `RolledBack`. PostgreSQL: `InDoubt`. MariaDB: resolved in time, `RolledBack`; otherwise `InDoubt` |
//! | nine tenths of the lease are over, and your work is not done | `RolledBack`. PostgreSQL and MariaDB, while it still executes a statement of yours: `InDoubt` |
//! | the process is stopped in your work until the lease is over | `InDoubt`. SQLite, if the work is done then: `RolledBack` |
//! | the run is dropped after it began | `InDoubt` |
//! | the lease ends before the database executes `COMMIT` | `RolledBack` |
//! | the fence has a larger token | `Fenced` |
//! | an error *answer* to `COMMIT`: a deferred constraint, a serialization failure | `RolledBack` |
//! | `COMMIT` is answered | `Committed`, with the proof `Fenced` |
//! | `COMMIT` is not answered | resolved in time: `Committed` or `RolledBack`; otherwise `InDoubt` |
//! | PostgreSQL has standbys to wait for, and they are not seen to have the commit | `InDoubt` |
//! | a statement of yours was `COMMIT` or `ROLLBACK` | SQLite: `RolledBack`. PostgreSQL: `InDoubt`, because what follows it is not fenced; the transaction itself is not applied, and if no answer to the commit comes, that is what is resolved. MariaDB: after `ROLLBACK` nothing is written any more, `RolledBack`, unless the work asks for it (`ROLLBACK AND CHAIN`, `START TRANSACTION READ WRITE`, `SET TRANSACTION READ WRITE`, `completion_type`): what it commits itself then is applied and not fenced; for `COMMIT` see the next row |
//! | MariaDB: a statement of yours committed (`COMMIT`, `BEGIN`, DDL, `LOCK TABLES`, `ANALYZE`, `SET autocommit`) | `InDoubt`; [`Resolve`](leasehold::fence::Resolve) reports that a part is applied |
//! | MariaDB: a deadlock ended the transaction | `RolledBack`, also if your work goes on after it |
//!
//! MySQL is meant where MariaDB is named. Only the server knows whether a statement of yours has
//! ended the transaction. So where PostgreSQL does not answer after your work, the run is
//! `InDoubt`, and MariaDB is asked what became of it.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod commit;
mod database;
mod fence;
mod lent;
#[cfg(feature = "mysql")]
mod mysql;
mod once;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod per_pool;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use database::SqlxDatabase;
pub use fence::{SqlxCommit, SqlxFence};
pub use once::Once;
