//! [`RunError`]: every other way out of a run, by name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cause::Cause;
use super::report::UndoReport;
use crate::lease::LeaseError;
use crate::model::commit::HeldKey;
use crate::model::doubt::Doubt;
use crate::model::error::{BoxError, Error};
use crate::model::run_sink::Debt;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// Every way out of a run that is not [`Committed`](super::Committed). [`was_applied`](Self::was_applied) tells them apart in one question.
#[must_use = "some of these were applied, and some owe something"]
#[non_exhaustive]
pub enum RunError<T, E = BoxError> {
    /// The lock was not acquired, so the work was not begun. Nothing was applied. Only one-shot runs
    /// ([`Lock::guarded`](crate::Lock::guarded)) end so.
    NotAcquired {
        /// Why the lock was not acquired.
        why: Error,
    },
    /// The work was not begun. Nothing was applied.
    NotStarted {
        /// What the lease lacked.
        why: LeaseError,
    },
    /// The run did not commit, and everything was taken back. Nothing was applied.
    RolledBack {
        /// Why it did not commit.
        cause: Cause<E>,
        /// What was taken back; complete.
        undo: UndoReport,
    },
    /// The run did not commit, and not everything could be taken back. Parts may be applied: `undo` and `debts` say which.
    Incomplete {
        /// Why it did not commit.
        cause: Cause<E>,
        /// What was taken back, and what was not.
        undo: UndoReport,
        /// The effects outside the process that are left.
        debts: Vec<Debt>,
    },
    /// A fence refused the only send of the commit, or a cell had a newer writer. Everything was taken back. Nothing was
    /// applied, and the lock has a newer holder.
    Fenced {
        /// The larger token, where it was told.
        seen: Option<FencingToken>,
        /// What was taken back; complete.
        undo: UndoReport,
    },
    /// The commit was sent and no answer came that could be trusted: it may or may not be applied, or may be applied yet.
    /// Look for `txn_id` at the resource. What is local was taken back; what is outside stands in `debts`, undecided.
    InDoubt {
        /// The locks of the run, as the commit was given them.
        locks: Arc<[HeldKey]>,
        /// The run's name, as the commit was given it.
        txn_id: TxnId,
        /// The fencing token that it was sent with.
        token: FencingToken,
        /// What came in place of an answer.
        error: BoxError,
        /// What was taken back.
        undo: UndoReport,
        /// The effects of the run's steps: theirs to keep if the commit is found applied, to take back if not.
        debts: Vec<Debt>,
    },
    /// The commit is applied, but the lease was over when it was done, and no fence vouches for it: somebody else may have
    /// acted at the same time. Exclusivity is not claimed.
    CommittedLate {
        /// What the work returned.
        value: T,
        /// The fencing token that the run was under.
        token: FencingToken,
        /// By how much, at most, the commit ended after the deadline; zero if the lease was lost for another reason.
        late_by: Duration,
        /// Whether the cells that the run wrote show it; false if a newer holder had written them meanwhile.
        published: bool,
    },
}

impl<T, E> RunError<T, E> {
    /// Whether anything of the run was applied; `None` if that is partly so or unknown.
    #[must_use]
    pub fn was_applied(&self) -> Option<bool> {
        match self {
            Self::NotAcquired { .. }
            | Self::NotStarted { .. }
            | Self::RolledBack { .. }
            | Self::Fenced { .. } => Some(false),
            Self::Incomplete { .. } | Self::InDoubt { .. } => None,
            Self::CommittedLate { .. } => Some(true),
        }
    }

    /// Why the run did not commit, where there is a cause to tell.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause<E>> {
        match self {
            Self::RolledBack { cause, .. } | Self::Incomplete { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// What was taken back, where something could have been.
    #[must_use]
    pub fn undo(&self) -> Option<&UndoReport> {
        match self {
            Self::RolledBack { undo, .. }
            | Self::Incomplete { undo, .. }
            | Self::Fenced { undo, .. }
            | Self::InDoubt { undo, .. } => Some(undo),
            Self::NotAcquired { .. } | Self::NotStarted { .. } | Self::CommittedLate { .. } => None,
        }
    }

    /// The effects outside the process that are left.
    #[must_use]
    pub fn debts(&self) -> &[Debt] {
        match self {
            Self::Incomplete { debts, .. } | Self::InDoubt { debts, .. } => debts,
            _ => &[],
        }
    }

    /// The same, with another value where it holds one.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> RunError<U, E> {
        match self {
            Self::NotAcquired { why } => RunError::NotAcquired { why },
            Self::NotStarted { why } => RunError::NotStarted { why },
            Self::RolledBack { cause, undo } => RunError::RolledBack { cause, undo },
            Self::Incomplete { cause, undo, debts } => RunError::Incomplete { cause, undo, debts },
            Self::Fenced { seen, undo } => RunError::Fenced { seen, undo },
            Self::InDoubt {
                locks,
                txn_id,
                token,
                error,
                undo,
                debts,
            } => RunError::InDoubt {
                locks,
                txn_id,
                token,
                error,
                undo,
                debts,
            },
            Self::CommittedLate {
                value,
                token,
                late_by,
                published,
            } => RunError::CommittedLate {
                value: change(value),
                token,
                late_by,
                published,
            },
        }
    }

    /// The commit whose outcome is unknown, for [`Resolve`](crate::fence::Resolve); `None` for every other end.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::InDoubt { locks, txn_id, .. } => Some(Doubt {
                locks: locks.to_vec(),
                txn_id: *txn_id,
            }),
            _ => None,
        }
    }

    pub(super) fn taken_back(cause: Cause<E>, undo: UndoReport, debts: Vec<Debt>) -> Self {
        if !debts.is_empty() || !undo.is_complete() {
            return Self::Incomplete { cause, undo, debts };
        }
        match cause {
            Cause::Fenced { seen } => Self::Fenced { seen, undo },
            cause => Self::RolledBack { cause, undo },
        }
    }
}

// By hand, so that neither asks anything of `T`.
impl<T, E: fmt::Debug> fmt::Debug for RunError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired { why } => f.debug_struct("NotAcquired").field("why", why).finish(),
            Self::NotStarted { why } => f.debug_struct("NotStarted").field("why", why).finish(),
            Self::RolledBack { cause, undo } => f
                .debug_struct("RolledBack")
                .field("cause", cause)
                .field("undo", undo)
                .finish(),
            Self::Incomplete { cause, undo, debts } => f
                .debug_struct("Incomplete")
                .field("cause", cause)
                .field("undo", undo)
                .field("debts", debts)
                .finish(),
            Self::Fenced { seen, undo } => f
                .debug_struct("Fenced")
                .field("seen", seen)
                .field("undo", undo)
                .finish(),
            Self::InDoubt {
                locks,
                txn_id,
                token,
                error,
                undo,
                debts,
            } => f
                .debug_struct("InDoubt")
                .field("locks", locks)
                .field("txn_id", txn_id)
                .field("token", token)
                .field("error", error)
                .field("undo", undo)
                .field("debts", debts)
                .finish(),
            Self::CommittedLate {
                token,
                late_by,
                published,
                ..
            } => f
                .debug_struct("CommittedLate")
                .field("token", token)
                .field("late_by", late_by)
                .field("published", published)
                .finish_non_exhaustive(),
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for RunError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired { why } => write!(f, "not acquired: {why}"),
            Self::NotStarted { why } => write!(f, "not started: {why}"),
            Self::RolledBack { cause, undo } => write!(f, "rolled back: {cause}; {undo}"),
            Self::Incomplete { cause, undo, debts } => write!(
                f,
                "not committed, and not wholly taken back: {cause}; {undo} debts={}; settle the debts by hand",
                debts.len()
            ),
            Self::Fenced { seen, undo } => {
                let cause: Cause<E> = Cause::Fenced { seen: *seen };
                write!(f, "fenced out: {cause}; {undo}")
            }
            Self::InDoubt {
                txn_id,
                token,
                error,
                ..
            } => write!(
                f,
                "the commit is in doubt: {error}; txn_id={txn_id} token={token}; look for it at the resource"
            ),
            Self::CommittedLate { token, late_by, .. } => write!(
                f,
                "committed, but after the lease: late_by={late_by:?} token={token}; somebody else may have acted at the same time"
            ),
        }
    }
}

impl<T, E: fmt::Debug + fmt::Display> std::error::Error for RunError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotAcquired { why } => Some(why),
            Self::NotStarted { why } => Some(why),
            Self::RolledBack { cause, .. } | Self::Incomplete { cause, .. } => match cause {
                Cause::Lease(error) => Some(error),
                Cause::NotApplied(error) => Some(error.as_ref()),
                Cause::Refused(error) => Some(error),
                _ => None,
            },
            Self::InDoubt { error, .. } => Some(error.as_ref()),
            Self::Fenced { .. } | Self::CommittedLate { .. } => None,
        }
    }
}
