//! The behaviour suite for authors of stores (feature `testing`).
//!
//! Small cases, grouped by the [clauses](Clause) of the contract of [`Store`](crate::store::Store),
//! each with a sentence that says what it shows. The store's
//! [`Capability`](crate::store::Capability) selects the cases, therefore the suite is exactly as
//! long as the store's claim; a case that does not apply is in the report, with the reason.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use leasehold::clock::{Clock, ManualClock};
//! use leasehold::testing::conformance;
//! use leasehold::testing::conformance::OnManualClock;
//! use leasehold::store::MemoryStore;
//!
//! let clock = ManualClock::new();
//! let store = MemoryStore::with_clock(clock.clone());
//! let harness = OnManualClock::new(clock, move || store.clone());
//! conformance::run(&harness).await.assert_passed();
//! # }
//! ```
//!
//! Every case uses keys of its own, so that a server that others use as well may be tested; nothing
//! is left behind for longer than a TTL. What the suite cannot show: that the server itself is
//! linearizable, and that it keeps its promises over a restart. For that, restart it.

mod case;
mod clause;
mod exclusion;
mod expiry;
mod fencing;
mod handover;
mod harness;
mod inspection;
mod membership;
mod order;
mod read_write;
mod release;
mod renewal;
mod report;
mod rest;
mod revocation;
mod shares;
mod suite;
mod table;
mod uncertainty;
mod wake_up;

pub use clause::Clause;
pub use harness::{Harness, OnManualClock};
pub use report::{Finding, Report, Sum, Verdict};
pub use suite::{run, run_member};
pub use table::Table;
