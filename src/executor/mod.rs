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
//! # The path of a run
//!
//! 1. *Enter.* The run is counted before it looks whether the hold is ending, and until its last effect, undo included. The end
//!    of a hold waits for every run that was counted (I5), so nothing commits once it has waited.
//! 2. *Begin* if the fast clock finds the commit budget left.
//! 3. *Work*: the closure. It asks for the lease whenever it likes.
//! 4. *Commit* if the hold is not ending and the strict clocks find the commit budget left (I4).
//! 5. *Look again* by the strict clocks after a commit call, and claim no more than that shows.
//!
//! # Every way out
//!
//! | the work | the lease | commit | the caller gets | was anything applied? |
//! |---|---|---|---|---|
//! | not begun (one-shot) | not acquired | - | [`RunError::NotAcquired`] | no |
//! | not begun | not live, ending, or less than the budget | - | [`RunError::NotStarted`] | no |
//! | `Err`; or `Ok` but lapsed before the commit, refused, or in conflict; or the commit says [`NotApplied`](CommitError::NotApplied) | any | none or refused | [`RunError::RolledBack`], if the undo is complete | no |
//! | the same, but an undo failed or a compensation could not soundly run | any | - | [`RunError::Incomplete`] | partly or unknown: the debts say what |
//! | `Ok` | live | refused by a fence at the first send, or by a cell with a newer writer | [`RunError::Fenced`] | no |
//! | `Ok` | live | unanswered, timed out, [`Unknown`](CommitError::Unknown) | [`RunError::InDoubt`] | unknown |
//! | `Ok` | live before, over after; no fence | done | [`RunError::CommittedLate`] | yes; exclusivity is *not* claimed |
//! | `Ok` | live before and after; or a fence accepted | done | [`Committed`] | yes |
//! | panic | any | - | undo, then the panic goes on | as above; debts go to the manager |
//! | future dropped | any | - | undo by the drop, and by the manager | as above; in doubt after the commit call began |
//!
//! # What a [`CommitProof`] rests on
//!
//! - A run without a commit call and without cells is [`WithinLease`](CommitProof::WithinLease) with *no* look after the commit: a lease
//!   that is over never comes back (I2), so a strict look after the last step of the work shows that every effect before it fell
//!   within the lease.
//! - Cells are published after that look. A publishing that stalls in between meets the cell's own check of tokens, which is made in
//!   one step with the swap: [`Local`](CommitProof::Local). Where the store does not promise that tokens grow, that check proves nothing;
//!   then the lease is looked at again after the swap, and a late publishing is [`CommittedLate`](RunError::CommittedLate).
//! - A commit call may last. [`WithinLease`](CommitProof::WithinLease) says that the lease was live when it had answered,
//!   [`Fenced`](CommitProof::Fenced) that the resource compared the token itself.
//!
//! # Doubt
//!
//! A commit or a step without an answer that can be trusted is in doubt: never "not applied" (I7). Its hold is then not
//! released but left to expire, so that the late effect has that long to land. After a commit in doubt what is local is taken
//! back, as the cells are (they show nothing that is not known to be committed); the effects of steps are left as they are and stand in
//! the debts as [`Undecided`](crate::executor::DebtState::Undecided), because to take back a part of what may be committed is worse than either.
//!
//! A step in doubt also keeps its run from committing, whatever the work answers. To find out what became of an effect, ask
//! again inside the step.
//!
//! # What is not promised
//!
//! Between the last look and the effect of a commit call the process may stall for any time. The outcome says so afterwards
//! ([`CommittedLate`](RunError::CommittedLate)); only a fence at the resource prevents it.

mod abort;
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
pub use crate::model::run_sink::{Debt, DebtState};
pub use abort::Abort;
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
