//! Distributed locks whose critical sections commit only while the lease is live.
//!
//! A [`LockManager`] holds locks in a store (memory, files, Redis, Redlock, PostgreSQL, ZooKeeper)
//! and renews them. An [`Executor`] runs your changes as closures: it checks the lease before the
//! closure, inside it on request, before the commit and after it. If the lease is gone, it undoes
//! the changes.
//!
#![doc = include_str!("docs/lost_lease.svg")]
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{GuardedCell, LockManager};
//!
//! // Or "file:", "redis://...", "postgres://...", "zookeeper://...".
//! let locks = LockManager::connect("memory:").await?;
//! // Can be changed only inside a run.
//! let balance = GuardedCell::new(100);
//!
//! // Renewed until it is released or dropped.
//! let guard = locks.lock("accounts/7").acquire().await?;
//! let done = guard.guarded(|tx| {
//!     // A copy: published if the lease is live at the end.
//!     *tx.write(&balance) -= 10;
//!     Ok(())
//! })?;
//! println!("token {}, {:?} left", done.token, done.slack);
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guides
//!
//! | question | page |
//! |---|---|
//! | the terms, and the first five minutes | [`docs::concepts`] |
//! | which lock, and how to write the data | [`docs::choosing`] |
//! | a run, and every outcome of it | [`docs::guarded`] |
//! | N pieces of work that processes divide among themselves | [`docs::shards`] |
//! | a cron job on many hosts, once | [`docs::once`] |
//! | what is promised, and what is not | [`docs::safety`], [`docs::limitations`] |
//! | memory, files, Redis, Redlock, PostgreSQL, ZooKeeper, your own store | [`docs::stores`], [`docs::writing_a_store`] |
//! | passwords and tokens that change | [`docs::credentials`] |
//! | what it costs | [`docs::speed`] |
//! | data in PostgreSQL, MariaDB, MySQL or SQLite: transactions under a fence | [`docs::sql`] |
//! | commands and scripts under a lock | [`docs::tool`] |
//! | what shows the guarantees | [`docs::proof`] |
//! | logs, spans, metrics, probes | [`docs::observing`] |
//! | code around acquire and release, rate limits | [`handler`], [`docs::writing_a_handler`] |
//! | the names that other libraries use | [`docs::coming_from`] |
//!
//! # Names
//!
//! | group | names |
//! |---|---|
//! | setting up | [`LockManager`], [`LockManagerBuilder`], [`Settings`], [`Credentials`], [`config`], [`connect`] |
//! | one lock | [`Lock`], [`LockGuard`], [`Lease`], [`FencingToken`], [`Key`] |
//! | other kinds of locks | [`read_write`], [`multi`], [`reentrant`], [`semaphore`], [`permits`], [`election`], [`shards`], [`once`] |
//! | runs | [`Executor`], [`GuardedCell`], [`Tx`], [`AsyncTx`], [`Committed`], [`RunError`], [`Cause`], [`Abort`], [`run`] |
//! | errors | [`Error`], [`ErrorKind`], [`LeaseError`], [`Ended`], [`BoxError`] |
//! | stores and fences | [`store`], [`redis`], [`postgres`], [`zookeeper`], [`kubernetes`], [`bucket`], [`fence`] |
//! | operation | [`handler`], [`health`] |
//! | your tests | [`clock`], [`testing`] |
//!
//! # Features
//!
//! Each feature adds names and changes no behaviour.
//!
//! | feature | adds |
//! |---|---|
//! | `redis` | one Redis server, Sentinel, Cluster, Redlock |
//! | `postgres` | the PostgreSQL store, and the fence for transactions in PostgreSQL |
//! | `kubernetes` | the store in Leases of a Kubernetes cluster |
//! | `object-store` | the store in a bucket of S3 or Azure |
//! | `zookeeper`, `zookeeper-async` | the ZooKeeper store, and a second driver for it |
//! | `tls` | TLS to Redis and PostgreSQL |
//! | `config` | managers from files and from the environment; settings as data (`serde`) |
//! | `metrics`, `flow-control` | observers and a handler |
//! | `testing` | tools for tests: a manual clock, a store that fails on purpose, the suite for stores |

#![cfg_attr(docsrs, feature(doc_cfg))]
// A warning in an example would be copied along with it.
#![doc(test(attr(deny(unused_must_use))))]
// Links to what a feature adds are checked where that feature is on, which is how the pages are
// published.
#![cfg_attr(
    not(all(feature = "config", feature = "testing")),
    allow(rustdoc::broken_intra_doc_links)
)]

// First what `LockManager` does: rustdoc shows its `impl` blocks in this order.
pub mod connect;
mod manager;
mod recipes;

#[cfg(feature = "object-store")]
pub mod bucket;
pub mod clock;
#[cfg(feature = "config")]
pub mod config;
pub mod docs;
mod executor;
pub mod fence;
pub mod handler;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod lease;
mod model;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod settings;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use executor::{Abort, AsyncTx, Cause, Committed, Executor, GuardedCell, RunError, Tx};
pub use lease::{Lease, LeaseError};
pub use manager::{LockGuard, LockManager, LockManagerBuilder};
pub use model::credentials::Credentials;
pub use model::error::{BoxError, Ended, Error, ErrorKind};
pub use model::key::Key;
pub use model::token::FencingToken;
pub use recipes::lock::Lock;
pub use recipes::{election, multi, once, permits, read_write, reentrant, semaphore, shards};
pub use settings::Settings;

/// What a manager reports about itself: the locks that it holds, and how its thread keeps up.
pub mod health {
    pub use crate::manager::{Health, Held};
}

/// What a run is made of: cells, steps and compensation, commits and their proof, results, doubts.
pub mod run {
    pub use crate::executor::{
        Applied, CommitAnswer, CommitPermit, CommitProof, CommitValue, Compensation, Debt,
        DebtState, Doubt, Effect, EffectError, FENCED_COMPENSATION_LIMIT, HeldKey, HookResult,
        Locks, Receipt, Resolution, Snapshot, Staged, StepError, Together, UndoReport, UndoResult,
        Undone, read_together,
    };
    pub use crate::model::txn::TxnId;
}

#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
struct Readme;
