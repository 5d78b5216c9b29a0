//! Guarded runs: work that is committed only under a live lease, and undone if it is not.
//!
//! ```
//! # use leasehold::{FencingToken, Settings};
//! # use leasehold::clock::ManualClock;
//! # use leasehold::testing::TestHold;
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
//! [The guide](crate::docs::guarded) describes the phases of a run, [its
//! outcomes](crate::docs::guarded#outcomes), and [what each proof is based
//! on](crate::docs::guarded#commit-proofs). The code checks the lease with the fast clock before
//! the work, and with the strict clocks before the commit and after a commit call (I4). Every run
//! is counted from before it checks whether the hold is ending until its last effect, undo
//! included; the end of a hold waits for every counted run (I5).
//!
//! # Doubt
//!
//! A commit or a step without a trusted answer is in doubt, never "not applied" (I7). Its hold is
//! not released; it expires, so that the late effect has that long to arrive. After a commit in
//! doubt, local changes are undone, and cells show nothing that is not known to be committed.
//! Effects of steps stay, and their debts are [`Undecided`](DebtState::Undecided), because
//! reverting a part of what may be committed is worse than either result.
//!
//! A step in doubt also prevents its run from committing, whatever the work returns. To find out
//! what happened to an effect, query the resource inside the step.
//!
//! # Several locks
//!
//! A run of [`MultiGuard::executor`](crate::multi::MultiGuard::executor) is under all locks of a
//! [`MultiLock`](crate::multi::MultiLock): every check is a check of every lease, and its
//! [`CommitPermit`] carries every key and token. See [there](crate::multi) for a transfer between
//! two accounts.
//!
//! # Not guaranteed
//!
//! Between the last check and the effect of a commit call the process may stop for any time. The
//! outcome reports this afterwards ([`CommittedLate`](RunError::CommittedLate)); only a fence at
//! the resource prevents it.

mod cell;
mod context;
#[cfg(feature = "testing")]
mod explore;
mod handle;
mod inside;
mod outcome;
mod own_runs;
mod run;
#[cfg(feature = "testing")]
mod test_hold;
mod turn;
mod tx;
mod undo;
mod while_live;

pub use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey, Locks};
pub use crate::model::doubt::{Doubt, Resolution};
pub use crate::model::run_sink::{Debt, DebtState};
pub use cell::{GuardedCell, Staged, Together, read_together};
#[cfg(feature = "testing")]
pub use explore::{Explored, MissedUndo, explore_lapses, explore_lapses_async};
pub use handle::Executor;
pub(crate) use inside::is_inside;
pub use outcome::{
    Abort, Cause, CommitProof, Committed, HookResult, Receipt, RunError, UndoReport, UndoResult,
    Undone,
};
pub(crate) use own_runs::own_runs;
pub use run::AsyncTx;
#[cfg(feature = "testing")]
pub use test_hold::TestHold;
pub use tx::{
    CommitAnswer, CommitValue, Compensation, Effect, FENCED_COMPENSATION_LIMIT, Snapshot,
    StepError, Tx,
};
