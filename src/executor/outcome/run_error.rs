//! [`RunError`]: every end of a run that is not a commit within the lease, by name.

use std::fmt;
use std::time::Duration;

use super::cause::Cause;
use super::report::UndoReport;
use crate::lease::LeaseError;
use crate::model::commit::Locks;
use crate::model::doubt::Doubt;
use crate::model::error::{BoxError, Error};
use crate::model::run_sink::Debt;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// Every end of a run that is not [`Committed`](super::Committed).
/// [`was_applied`](Self::was_applied) sorts them in one question.
#[must_use = "some of these were applied, and some leave debts"]
#[non_exhaustive]
pub enum RunError<T, E = BoxError> {
    /// The lock was not acquired, so the work was not begun. Nothing was applied. Only one-shot
    /// runs ([`Lock::guarded`](crate::Lock::guarded)) end this way.
    NotAcquired {
        /// Why the lock was not acquired.
        why: Error,
    },
    /// The work was not begun. Nothing was applied.
    NotStarted {
        /// Why the lease did not allow it.
        why: LeaseError,
    },
    /// The run did not commit, and everything that the work noted in its [`Tx`](crate::Tx) was
    /// undone. What the work did outside of it remains.
    RolledBack {
        /// Why it did not commit.
        cause: Cause<E>,
        /// What was undone; complete. Its `Display` says so if nothing was noted.
        undo: UndoReport,
    },
    /// The run did not commit, and not everything could be undone. Parts may be applied: `undo`
    /// says which.
    Incomplete {
        /// Why it did not commit.
        cause: Cause<E>,
        /// What was undone, and what was not.
        undo: UndoReport,
    },
    /// A fence refused the only send of the commit or of a step, or a cell had a newer writer.
    /// Everything that was noted was undone, and the lock has a newer holder.
    Fenced {
        /// The larger token, if the resource reported it.
        seen: Option<FencingToken>,
        /// What was undone; complete.
        undo: UndoReport,
    },
    /// The commit was sent and no trustworthy answer came: it may or may not be applied, or may be
    /// applied later. Look for `txn_id` at the resource. Local changes were undone; the effects of
    /// steps are debts, undecided.
    InDoubt {
        /// The locks of the run, as the commit call received them.
        locks: Locks,
        /// The run's identifier, as the commit call received it.
        txn_id: TxnId,
        /// The fencing token that it was sent with; of a run under several locks, that of the first
        /// key in their order.
        token: FencingToken,
        /// What came instead of an answer.
        error: BoxError,
        /// What was undone. Its debts are the effects of the run's steps: keep them if the commit
        /// turns out to be applied, undo them if not.
        undo: UndoReport,
    },
    /// The commit is applied, but the lease was over when it was done, and no fence checked it:
    /// another holder may have acted at the same time. Exclusivity is not claimed.
    CommittedLate {
        /// The locks that the run was under, sorted by key.
        locks: Locks,
        /// What the work returned.
        value: T,
        /// The fencing token that the run was under; of a run under several locks, that of the
        /// first key in their order.
        token: FencingToken,
        /// By how much, at most, the commit ended after the deadline; zero if the lease was lost
        /// for another reason.
        late_by: Duration,
        /// Whether the cells that the run wrote show its values; false if a newer holder had
        /// written them in the meantime.
        published: bool,
    },
}

impl<T, E: 'static> RunError<T, E> {
    /// Whether to run the same work again is safe and may help: nothing was applied. Acquire the
    /// lock again first.
    ///
    /// True for [`NotStarted`](Self::NotStarted), [`Fenced`](Self::Fenced), and
    /// [`RolledBack`](Self::RolledBack) unless the run broke a rule ([`Cause::Refused`]), or its
    /// work [stopped](Cause::Stopped) or [failed](Cause::Failed). What the work decided is final,
    /// with its reason, unless the work says otherwise: its error, or the first of ours that caused
    /// it, is an [`Error`] that [is retryable](Error::is_retryable), such as
    /// `Error::unavailable("the ledger is not open yet")`. A commit that was
    /// [not applied](Cause::NotApplied) is repeated unless such an error says that this cannot
    /// help. For [`NotAcquired`](Self::NotAcquired)
    /// as [`Error::is_retryable`] says. Never for [`Incomplete`](Self::Incomplete),
    /// [`InDoubt`](Self::InDoubt) and [`CommittedLate`](Self::CommittedLate): to repeat those may
    /// apply the change twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotAcquired { why } => why.is_retryable(),
            Self::NotStarted { .. } | Self::Fenced { .. } => true,
            Self::RolledBack { cause, .. } => cause.is_retryable(),
            Self::Incomplete { .. } | Self::InDoubt { .. } | Self::CommittedLate { .. } => false,
        }
    }
}

impl<T, E> RunError<T, E> {
    /// Whether the run was applied; `None` if parts of it were, or if that is unknown.
    ///
    /// It answers for what the work did *through its [`Tx`](crate::Tx)*: cells, steps, hooks, the
    /// commit. A file that the work wrote by itself is written, also where the answer is
    /// `Some(false)`: no type can know of it, and nothing undoes it.
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

    /// Its name, for people.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::NotAcquired { .. } => "not acquired",
            Self::NotStarted { .. } => "not started",
            Self::RolledBack { .. } => "rolled back",
            Self::Incomplete { .. } => "incomplete",
            Self::Fenced { .. } => "fenced",
            Self::InDoubt { .. } => "in doubt",
            Self::CommittedLate { .. } => "committed late",
        }
    }

    /// Why the run did not commit, if it has a cause.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause<E>> {
        match self {
            Self::RolledBack { cause, .. } | Self::Incomplete { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// What was undone, for outcomes in which something could have been.
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
        self.undo().map_or(&[], UndoReport::debts)
    }

    /// The same, with another value if it contains one.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> RunError<U, E> {
        match self {
            Self::NotAcquired { why } => RunError::NotAcquired { why },
            Self::NotStarted { why } => RunError::NotStarted { why },
            Self::RolledBack { cause, undo } => RunError::RolledBack { cause, undo },
            Self::Incomplete { cause, undo } => RunError::Incomplete { cause, undo },
            Self::Fenced { seen, undo } => RunError::Fenced { seen, undo },
            Self::InDoubt {
                locks,
                txn_id,
                token,
                error,
                undo,
            } => RunError::InDoubt {
                locks,
                txn_id,
                token,
                error,
                undo,
            },
            Self::CommittedLate {
                locks,
                value,
                token,
                late_by,
                published,
            } => RunError::CommittedLate {
                locks,
                value: change(value),
                token,
                late_by,
                published,
            },
        }
    }

    /// The commit whose outcome is unknown, for [`Resolve`](crate::fence::Resolve); `None` for
    /// every other end.
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

    pub(crate) fn not_committed(cause: Cause<E>, undo: UndoReport) -> Self {
        match cause {
            cause if !undo.is_complete() => Self::Incomplete { cause, undo },
            Cause::Fenced { seen } => Self::Fenced { seen, undo },
            cause => Self::RolledBack { cause, undo },
        }
    }
}

// Written by hand, so that neither needs a bound on `T`.
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
            Self::Incomplete { cause, undo } => f
                .debug_struct("Incomplete")
                .field("cause", cause)
                .field("undo", undo)
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
            } => f
                .debug_struct("InDoubt")
                .field("locks", locks)
                .field("txn_id", txn_id)
                .field("token", token)
                .field("error", error)
                .field("undo", undo)
                .finish(),
            Self::CommittedLate {
                locks,
                token,
                late_by,
                published,
                ..
            } => f
                .debug_struct("CommittedLate")
                .field("locks", locks)
                .field("token", token)
                .field("late_by", late_by)
                .field("published", published)
                .finish_non_exhaustive(),
        }
    }
}

impl<T, E: fmt::Display + 'static> fmt::Display for RunError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired { why } => write!(f, "not acquired: {why}"),
            Self::NotStarted { why } => write!(f, "not started: {why}"),
            Self::RolledBack {
                cause: cause @ Cause::Stopped,
                undo,
            } => write!(f, "stopped, {undo}: {cause}"),
            Self::RolledBack { cause, undo } => write!(f, "rolled back, {undo}: {cause}"),
            Self::Incomplete { cause, undo } => write!(
                f,
                "not committed, and not completely undone, {undo} debts={}; settle the debts by hand: {cause}",
                undo.debts().len()
            ),
            Self::Fenced { seen, undo } => {
                let cause: Cause<E> = Cause::Fenced { seen: *seen };
                write!(f, "fenced, {undo}: {cause}")
            }
            Self::InDoubt { txn_id, token, .. } => write!(
                f,
                "the commit is in doubt: txn_id={txn_id} token={token}; behind a fence call \
                 fence.resolve(&error.doubt()), or run leasehold resolve; \
                 otherwise look for it at the resource"
            ),
            Self::CommittedLate { token, late_by, .. } => write!(
                f,
                "committed, but after the lease: late_by={late_by:?} token={token}; another holder may have acted at the same time"
            ),
        }
    }
}

/// [`source`](std::error::Error::source) is what `Display` does not show: a printed chain names
/// each error once. What the work failed with is in [`cause`](RunError::cause), and `Display` shows
/// it.
impl<T, E: fmt::Debug + fmt::Display + 'static> std::error::Error for RunError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotAcquired { why } => why.source(),
            Self::NotStarted { why } => why.source(),
            Self::RolledBack { cause, .. } | Self::Incomplete { cause, .. } => cause.source(),
            Self::InDoubt { error, .. } => Some(error.as_ref()),
            Self::Fenced { .. } | Self::CommittedLate { .. } => None,
        }
    }
}
