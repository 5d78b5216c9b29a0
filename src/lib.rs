//! Run your critical section only while you hold the lease, and take it back if you do not.

pub mod blocking;
mod clock;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
pub mod election;
mod error;
pub mod executor;
pub mod fence;
pub mod handler;
mod holder;
mod key;
mod lease;
mod lock;
mod manager;
pub mod multi;
mod one_shot;
mod outbox;
pub mod read_write;
pub mod reentrant;
mod run_event;
pub mod semaphore;
mod settings;
pub mod store;
mod token;
mod txn;

#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Audit, Clock, Lane, Reading, Stamp};
pub use election::{Election, Leader, Leadership};
pub use error::{BoxError, Error, ErrorKind, LostReason};
pub use executor::{
    Abort, Applied, AsyncTx, Cause, CommitError, Committed, Compensation, Effect, EffectError,
    Executor, Guarded, Permit, Proof, Receipt, RunError, Snapshot, Staged, StepError, Tx,
    UndoReport, read_together,
};
pub use handler::{Event, Handler, Observer};
pub use holder::{Label, OwnerToken};
pub use key::Key;
pub use lease::{GRANULARITY, LOCAL_DRIFT_PPM, Lease, LeaseError, Terms};
pub use lock::Lock;
pub use manager::{Builder, Health, Held, LockGuard, LockManager};
pub use multi::{MultiGuard, MultiLock};
pub use outbox::{Debt, DebtState, Intent};
pub use read_write::{ReadGuard, ReadWriteLock, WriteGuard};
pub use reentrant::{Reentrant, ReentrantGuard, Scope, scope};
pub use run_event::RunEvent;
pub use semaphore::{Semaphore, SlotGuard};
pub use settings::Settings;
pub use token::FencingToken;
pub use txn::TxnId;

/// Aids for tests and benches: holds that the test itself ends and renews, and the engine alone.
#[cfg(feature = "test-util")]
pub mod test_util {
    pub use crate::executor::BareHold;
    pub use crate::manager::Renewals;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
