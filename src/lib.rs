//! Run your critical section only while you hold the lease, and take it back if you do not.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{GuardedCell, LockManager};
//!
//! let locks = LockManager::connect("memory:").await?; // or "redis://...", "zookeeper://..."
//! let balance = GuardedCell::new(100); // can be changed through runs only
//!
//! let guard = locks.lock("accounts/7").acquire().await?; // renewed until it is released or dropped
//! let done = guard.executor().guarded(|tx| {
//!     *tx.write(&balance) -= 10; // a copy: published if the lease is live at the end, else dropped
//!     Ok(())
//! })?;
//! println!("committed under token {}, {:?} left", done.token, done.slack);
//! let _ = guard.release().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go
//!
//! | | |
//! |---|---|
//! | the words, and the first five minutes | [`docs::concepts`] |
//! | which kind of lock, which way to write the data | [`docs::choosing`] |
//! | a run, and every way out of it | [`docs::guarded`], [`Executor`], [`RunError`] |
//! | what is promised, and what is not | [`docs::safety`], [`docs::limitations`] |
//! | Redis, Redlock, ZooKeeper, memory, your own | [`docs::stores`], [`docs::writing_a_store`] |
//! | set-up from a file or the environment (feature `config`) | `Config` |
//! | logs, metrics, limits | [`handler`], [`docs::writing_a_handler`] |
//! | another library's names | [`docs::coming_from`] |
//!
//! # Features
//!
//! Each adds names and changes no behaviour: `redis`, `redis-tls`, `redis-sentinel`, `redis-cluster`, `zookeeper`, `zookeeper-async`
//! (stores), `config` (files and environment), `serde` (settings as data), `metrics`, `flow-control` (handlers), `conformance`,
//! `test-util` (for tests), `cli` (the tool).

// Who copies an example is not warned.
#![doc(test(attr(deny(unused_must_use))))]

mod clock;
#[cfg(feature = "config")]
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
pub mod docs;
pub mod executor;
pub mod fence;
pub mod handler;
mod lease;
mod manager;
mod model;
mod recipes;
mod settings;
pub mod store;

#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Audit, Clock, ClockKind, Reading, Stamp};
#[cfg(feature = "config")]
pub use config::{Config, ManagerConfig};
pub use connect::UrlStore;
pub use executor::{
    Abort, Applied, AsyncTx, Cause, CommitError, CommitPermit, CommitProof, Committed,
    Compensation, Effect, EffectError, Executor, GuardedCell, HeldKey, Receipt, RunError, Snapshot,
    Staged, StepError, Tx, UndoReport, read_together,
};
pub use handler::{Event, Handler, Observer};
pub use lease::{GRANULARITY, LOCAL_DRIFT_PPM, Lease, LeaseError, Terms};
pub use manager::{Health, Held, LockGuard, LockManager, LockManagerBuilder};
pub use model::error::{BoxError, Error, ErrorKind, LostReason};
pub use model::holder::{Label, OwnerToken};
pub use model::key::Key;
pub use model::run_event::RunEvent;
pub use model::run_sink::{Debt, DebtState, Intent};
pub use model::token::FencingToken;
pub use model::txn::TxnId;
pub use recipes::election::{Election, LeaderInfo, Leadership};
pub use recipes::lock::Lock;
pub use recipes::multi::{MultiGuard, MultiLock};
pub use recipes::read_write::{ReadGuard, ReadWriteLock, WriteGuard};
pub use recipes::reentrant::{ReentrantGuard, ReentrantLock, Scope, scope};
pub use recipes::semaphore::{Semaphore, SemaphorePermit};
pub use recipes::{blocking, election, multi, read_write, reentrant, semaphore};
pub use settings::Settings;

/// Aids for tests and benches: holds that the test itself ends and renews, and the engine alone.
#[cfg(feature = "test-util")]
pub mod test_util {
    pub use crate::executor::TestHold;
    pub use crate::manager::Renewals;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
