//! Guarded runs: work that is committed only under a live lease, and taken back if it is not.
//!
//! ```
//! # use leasehold::{FencingToken, Settings, clock::ManualClock, test_util::TestHold};
//! # use std::time::Duration;
//! use leasehold::GuardedCell;
//!
//! # let hold = TestHold::new(ManualClock::new(), &Settings::default(), "accounts/7".parse()?,
//! #     FencingToken::new(1)?, Duration::from_secs(10));
//! # let executor = hold.executor();
//! let balances = GuardedCell::new(vec![100, 0]);
//! let done = executor.guarded(|tx| {
//!     let mut staged = tx.write(&balances);
//!     staged[0] -= 10;
//!     staged[1] += 10;
//!     tx.check()?;
//!     Ok(staged[0])
//! })?;
//! assert_eq!(done.value, 90);
//! assert_eq!(*balances.read(), [90, 10]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [The guide](crate::docs::guarded) describes the phases of a run and [its outcomes](crate::docs::guarded#outcomes). The code
//! checks the lease with the fast clock before the work, and with the strict clocks before the commit and after a commit call
//! (I4). Every run is counted from before it checks whether the hold is ending until its last effect, undo included; the end
//! of a hold waits for every counted run (I5).
//!
//! # Commit proofs
//!
//! - A run without a commit call and without cells is [`WithinLease`](CommitProof::WithinLease) *without* a check after the
//!   commit. A lease that is over never becomes live again (I2), so the strict check after the last step of the work shows
//!   that every effect before it was within the lease.
//! - Cells are published after that check. If the publication stalls in between, the cell's own check of tokens refuses it, in
//!   one step with the swap: [`Local`](CommitProof::Local). If the store does not guarantee that tokens grow, the cell's check
//!   proves nothing; then the lease is checked again after the swap, and a late publication is
//!   [`CommittedLate`](RunError::CommittedLate).
//! - A commit call may take long. [`WithinLease`](CommitProof::WithinLease) means that the lease was live after the answer,
//!   [`Fenced`](CommitProof::Fenced) that the resource itself compared the token.
//!
//! # Doubt
//!
//! A commit or a step without a trusted answer is in doubt, never "not applied" (I7). Its hold is not released; it expires, so
//! that the late effect has that long to arrive. After a commit in doubt, local changes are undone, and cells show nothing that
//! is not known to be committed. Effects of steps stay, and their debts are [`Undecided`](DebtState::Undecided), because
//! reverting a part of what may be committed is worse than either result.
//!
//! A step in doubt also prevents its run from committing, whatever the work returns. To find out what happened to an effect,
//! query the resource inside the step.
//!
//! # Not guaranteed
//!
//! Between the last check and the effect of a commit call the process may stop for any time. The outcome reports this
//! afterwards ([`CommittedLate`](RunError::CommittedLate)); only a fence at the resource prevents it.

mod abort;
mod answer;
mod async_tx;
mod awaiting;
#[cfg(feature = "test-util")]
mod bare;
mod blocking;
mod cause;
mod cell;
mod effect;
mod handle;
mod mode;
mod notes;
mod outcome;
mod publish;
mod report;
mod run_error;
mod settle;
mod snapshot;
mod staged;
mod step;
mod tally;
mod together;
mod tx;
mod undo;
mod unwinding;
mod watch;

pub use crate::model::commit::{Applied, CommitError, CommitPermit, HeldKey};
pub use crate::model::doubt::{Doubt, Resolution};
pub use crate::model::run_sink::{Debt, DebtState};
pub use abort::Abort;
pub use answer::{CommitAnswer, CommitValue};
pub use async_tx::AsyncTx;
#[cfg(feature = "test-util")]
pub use bare::TestHold;
pub use cause::Cause;
pub use cell::GuardedCell;
pub use effect::{Compensation, Effect, EffectError, FENCED_COMPENSATION_LIMIT, StepError};
pub use handle::Executor;
pub use mode::{Awaiting, Blocking, RunMode};
pub use outcome::{CommitProof, Committed, Receipt};
pub use report::{HookResult, UndoReport, UndoResult, Undone};
pub use run_error::RunError;
pub use snapshot::Snapshot;
pub use staged::Staged;
pub use together::{Together, read_together};
pub use tx::Tx;
