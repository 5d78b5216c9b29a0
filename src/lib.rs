//! Run your critical section only while you hold the lease, and take it back if you do not.

pub mod blocking;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod holder;
mod key;
mod lease;
mod lock;
mod manager;
mod outbox;
mod settings;
pub mod store;
mod token;
mod txn;

#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Audit, Clock, Lane, Reading, Stamp};
pub use error::{BoxError, Error, ErrorKind, LostReason};
pub use holder::{Label, OwnerToken};
pub use key::Key;
pub use lease::{GRANULARITY, LOCAL_DRIFT_PPM, Lease, LeaseError, Terms};
pub use lock::Lock;
pub use manager::{Builder, Health, Held, LockGuard, LockManager};
pub use outbox::{Debt, DebtState, Intent};
pub use settings::Settings;
pub use token::FencingToken;
pub use txn::TxnId;

/// Aids for tests and benches.
#[cfg(feature = "test-util")]
pub mod test_util {
    pub use crate::manager::Renewals;
}
