//! From the end of the work to the end of the commit: what both kinds of run share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::answer::Answer;
use super::cause::Cause;
use super::handle::Shared;
use super::mode::RunMode;
use super::notes::Notes;
use super::outcome::{CommitProof, Committed, Receipt};
use super::publish::Cells;
use super::report::UndoReport;
use super::run_error::RunError;
use super::tally::Tally;
use crate::clock::Stamp;
use crate::model::commit::{CommitError, CommitPermit};
use crate::model::error::BoxError;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// The commit is applied.
pub(super) enum Settled {
    Committed {
        slack: Duration,
        proof: CommitProof,
    },
    Late {
        slack: Duration,
        late_by: Duration,
        published: bool,
    },
}

/// The commit is not applied, or not known to be.
pub(super) enum Unsettled<E> {
    No(Cause<E>),
    InDoubt { txn_id: TxnId, error: BoxError },
}

impl<E> From<Cause<E>> for Unsettled<E> {
    fn from(cause: Cause<E>) -> Self {
        Self::No(cause)
    }
}

/// The end of a run that noted nothing: it is over if the lease is.
#[inline]
pub(super) fn nothing_noted<T, E>(
    shared: &Shared,
    value: T,
) -> Result<Committed<T>, RunError<T, E>> {
    match shared.may_commit() {
        Ok(slack) => Ok(Committed {
            value,
            token: shared.lease().token(),
            slack,
            proof: CommitProof::WithinLease,
        }),
        Err(why) => Err(RunError::RolledBack {
            cause: Cause::Lease(why),
            undo: UndoReport::default(),
        }),
    }
}

pub(super) fn in_doubt<T, E>(txn_id: TxnId, error: BoxError, tally: Tally) -> RunError<T, E> {
    RunError::InDoubt {
        locks: tally.lease.held_keys(),
        txn_id,
        token: tally.lease.token(),
        error,
        undo: tally.report,
        debts: tally.debts,
    }
}

/// Commits a run that named no commit call: its cells, if it wrote any.
pub(super) fn without_call<E>(shared: &Shared, cells: Cells) -> Result<Settled, Cause<E>> {
    let lease = shared.lease();
    if cells.is_empty() {
        let slack = shared.may_commit().map_err(Cause::Lease)?;
        let proof = CommitProof::WithinLease;
        return Ok(Settled::Committed { slack, proof });
    }
    if lease.is_fencing() {
        let slack = shared.may_commit().map_err(Cause::Lease)?;
        cells.publish()?;
        let proof = CommitProof::Local;
        return Ok(Settled::Committed { slack, proof });
    }
    // Tokens that may not grow prove nothing: the lease must be seen live after the swap.
    let before = lease.clock().stamp();
    let slack = shared.may_commit().map_err(Cause::Lease)?;
    cells.publish()?;
    Ok(judge_after(shared, slack, before.plus(slack), true))
}

/// A commit call that may begin.
pub(super) struct Ready {
    pub(super) permit: CommitPermit,
    cells: Cells,
}

/// Gets everything ready for a commit call. The lease is looked at last: nothing but the call comes after it.
pub(super) fn ready<E>(shared: &Shared, cells: Cells, txn_id: TxnId) -> Result<Ready, Cause<E>> {
    let lease = shared.lease();
    let cells = cells.reserve()?;
    let locks = lease.held_keys();
    let before = lease.clock().stamp();
    let remaining = shared.may_commit().map_err(Cause::Lease)?;
    let not_after = before.plus(remaining);
    let permit = CommitPermit::new(locks, txn_id, remaining, not_after);
    Ok(Ready { permit, cells })
}

impl Ready {
    /// Judges the answer of the commit call, and publishes the cells if it was applied.
    pub(super) fn answered<E: 'static>(
        self,
        shared: &Shared,
        answer: Answer,
    ) -> Result<Settled, Unsettled<E>> {
        let CommitPermit {
            remaining: slack,
            not_after,
            ..
        } = self.permit;
        match answer {
            Ok(Err(declined)) => Err(Unsettled::No(declined.into_cause())),
            Ok(Ok(applied)) => {
                let is_live = shared.lease().look_strict().is_ok();
                let published = self.cells.publish_reserved();
                let proof = match (applied.is_fenced(), is_live) {
                    (true, _) => CommitProof::Fenced,
                    (false, true) => CommitProof::WithinLease,
                    (false, false) => return Ok(late(shared, slack, not_after, published)),
                };
                if published {
                    Ok(Settled::Committed { slack, proof })
                } else {
                    Ok(late(shared, slack, not_after, false))
                }
            }
            Err(CommitError::NotApplied(error)) => Err(Unsettled::No(Cause::NotApplied(error))),
            Err(CommitError::Fenced { seen }) => Err(Unsettled::No(Cause::Fenced { seen })),
            Err(CommitError::Unknown(error)) => {
                let txn_id = self.permit.txn_id;
                Err(Unsettled::InDoubt { txn_id, error })
            }
        }
    }
}

fn judge_after(shared: &Shared, slack: Duration, not_after: Stamp, published: bool) -> Settled {
    if shared.lease().look_strict().is_ok() {
        let proof = CommitProof::WithinLease;
        return Settled::Committed { slack, proof };
    }
    late(shared, slack, not_after, published)
}

fn late(shared: &Shared, slack: Duration, not_after: Stamp, published: bool) -> Settled {
    Settled::Late {
        slack,
        late_by: shared.lease().clock().stamp().since(&not_after),
        published,
    }
}

impl Settled {
    fn receipt(&self, token: FencingToken, txn_id: Option<TxnId>) -> Receipt {
        let (slack, proof) = match *self {
            Self::Committed { slack, proof } => (slack, Some(proof)),
            Self::Late { slack, .. } => (slack, None),
        };
        Receipt {
            token,
            txn_id,
            slack,
            proof,
        }
    }

    /// The run is over: calls the hooks and makes the outcome.
    pub(super) fn finish<T, E, M: RunMode>(
        self,
        value: T,
        shared: &Shared,
        txn_id: Option<TxnId>,
        notes: Notes<'_, M>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        let token = shared.lease().token();
        let receipt = self.receipt(token, txn_id);
        for hook in notes.on_committed {
            // The text of a panic may hold what no log may: it stands where the panic itself is reported.
            if catch_unwind(AssertUnwindSafe(|| hook(&receipt))).is_err() {
                tracing::error!(%token, "a hook after the commit panicked");
            }
        }
        match self {
            Self::Committed { slack, proof } => Ok(Committed {
                value,
                token,
                slack,
                proof,
            }),
            Self::Late {
                late_by, published, ..
            } => Err(RunError::CommittedLate {
                value,
                token,
                late_by,
                published,
            }),
        }
    }
}

/// What was noted allows a commit; answers the cells that it is to show.
pub(super) fn sound<M: RunMode, E>(
    notes: &mut Notes<'_, M>,
    token: FencingToken,
) -> Result<Cells, Cause<E>> {
    notes.ensure_sound()?;
    Cells::new(std::mem::take(&mut notes.drafts), token)
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::executor::TestHold;
    use crate::settings::Settings;

    /// No work can come between the swap of the cells and the look after it, so that this asks for the judgement itself.
    #[test]
    fn a_publishing_that_ended_after_the_lease_is_late_where_tokens_prove_nothing() {
        let clock = ManualClock::new();
        let key = "accounts/7".parse().unwrap();
        let token = FencingToken::new(5).unwrap();
        let ttl = Duration::from_secs(10);
        let settings = Settings::default();
        let hold = TestHold::without_fencing(clock.clone(), &settings, key, token, ttl);
        let executor = hold.executor();
        let before = hold.lease().clock().stamp();
        let slack = executor.shared().may_commit().unwrap();

        let live = judge_after(executor.shared(), slack, before.plus(slack), true);
        assert!(matches!(
            live,
            Settled::Committed {
                proof: CommitProof::WithinLease,
                ..
            }
        ));
        clock.advance(slack + Duration::from_millis(3));
        let late = judge_after(executor.shared(), slack, before.plus(slack), true);
        let Settled::Late { late_by, .. } = late else {
            panic!("not late");
        };
        assert_eq!(late_by, Duration::from_millis(3));
    }
}
