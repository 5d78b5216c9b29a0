//! From the end of the work to the end of the commit: what both kinds of run share.

use std::time::Duration;

use tracing::Span;

use super::watch::{commit_answered, commit_span};
use crate::clock::Stamp;
use crate::executor::cell::Cells;
use crate::executor::context::RunContext;
use crate::executor::outcome::{Cause, CommitProof, Committed, Receipt, RunError, UndoReport};
use crate::executor::tx::{Answer, CommitCall, Notes, Tx};
use crate::executor::undo::{Tally, Why, commit_debt};
use crate::lease::LeaseError;
use crate::model::caught::caught;
use crate::model::commit::{CommitPermit, EffectError};
use crate::model::error::BoxError;
use crate::model::txn::TxnId;

/// The commit is applied.
pub(crate) struct Settled {
    slack: Duration,
    end: Result<CommitProof, Late>,
}

struct Late {
    late_by: Duration,
    published: bool,
}

/// The commit is not applied, or not known to be.
pub(crate) enum Unsettled<E> {
    No(Cause<E>),
    InDoubt { txn_id: TxnId, error: BoxError },
}

impl<E> From<Cause<E>> for Unsettled<E> {
    fn from(cause: Cause<E>) -> Self {
        Self::No(cause)
    }
}

impl<E> Unsettled<E> {
    /// The work gave up. If it did so because the run was refused, the refusal is the cause.
    pub(crate) fn given_up(cause: Cause<E>, tx: &mut Tx<'_>) -> Self {
        let is_refused = matches!(cause, Cause::Lease(LeaseError::Refused));
        let refusal = is_refused.then(|| tx.noted().take_refusal()).flatten();
        Self::No(refusal.map_or(cause, Cause::from))
    }

    /// Says how the run is to be undone. Reports a commit in doubt to the hold.
    pub(crate) fn report(&self, context: &RunContext, notes: &Notes<'_>) -> Why {
        match self {
            Self::No(Cause::Fenced { .. }) => Why::FencedOut,
            Self::No(_) => Why::of_notes(notes),
            Self::InDoubt { txn_id, .. } => {
                context.sink().debt(commit_debt(context.lease(), *txn_id));
                Why::CommitInDoubt
            }
        }
    }

    pub(crate) fn outcome<T>(self, tally: Tally, has_no_change: bool) -> RunError<T, E> {
        match self {
            Self::No(cause) => RunError::not_committed(cause, tally.report.of_work(has_no_change)),
            Self::InDoubt { txn_id, error } => RunError::InDoubt {
                locks: tally.lease.held_keys(),
                txn_id,
                token: tally.lease.token(),
                error,
                undo: tally.report,
            },
        }
    }
}

/// The end of a run that noted nothing: it fails if the lease is over.
#[inline]
pub(crate) fn nothing_noted<T, E>(
    context: &RunContext,
    value: T,
) -> Result<Committed<T>, RunError<T, E>> {
    match context.ensure_commit() {
        Ok(slack) => Ok(Committed {
            value,
            token: context.lease().token(),
            slack,
            proof: CommitProof::WithinLease,
            locks: context.locks().clone(),
        }),
        Err(why) => Err(RunError::RolledBack {
            cause: Cause::Lease(why),
            undo: UndoReport::default().of_work(true),
        }),
    }
}

/// What is left to do of a commit.
pub(crate) enum Commit<'env> {
    /// The run set no commit call, and its cells are published.
    Done(Settled),
    /// The call may begin: nothing may come between.
    Call(CommitCall<'env>, Prepared),
}

/// Validates what the work noted, and prepares its commit call; without one, commits.
pub(crate) fn prepare_commit<'env, E>(
    context: &RunContext,
    tx: &mut Tx<'env>,
) -> Result<Commit<'env>, Unsettled<E>> {
    let notes = tx.noted();
    notes.validate()?;
    let cells = Cells::new(std::mem::take(&mut notes.drafts))?;
    let Some(call) = notes.commit.take() else {
        return Ok(Commit::Done(publish(context, cells)?));
    };
    let txn_id = tx.txn_id().map_err(Cause::Refused)?;
    let cells = cells.reserve()?;
    // Made before the check, because a subscriber may take its time.
    let span = commit_span(context, txn_id);
    let before = context.lease().clock().stamp();
    let remaining = context.ensure_commit().map_err(Cause::Lease)?;
    let locks = context.locks().clone();
    let permit = CommitPermit::new(locks, txn_id, remaining, before.plus(remaining));
    let prepared = Prepared {
        permit: OfRun(permit),
        cells,
        span,
    };
    Ok(Commit::Call(call, prepared))
}

/// Commits a run without a commit call: publishes its cells, if it wrote any.
fn publish<E>(context: &RunContext, cells: Cells) -> Result<Settled, Cause<E>> {
    let lease = context.lease();
    let before = lease.clock().stamp();
    let slack = context.ensure_commit().map_err(Cause::Lease)?;
    let proof = match (cells.is_empty(), lease.is_fencing()) {
        (true, _) => {
            let end = Ok(CommitProof::WithinLease);
            return Ok(Settled { slack, end });
        }
        (false, true) => CommitProof::Local,
        // Tokens that may not grow prove nothing.
        (false, false) => CommitProof::WithinLease,
    };
    cells.publish()?;
    // The thread may have stalled since the check.
    if lease.look_strict().is_ok() {
        let end = Ok(proof);
        return Ok(Settled { slack, end });
    }
    Ok(late(context, slack, before.plus(slack), true))
}

/// A commit call that may begin.
pub(crate) struct Prepared {
    permit: OfRun,
    cells: Cells,
    span: Span,
}

/// The permit of a run, which is over with it: after its answer, and where it panics or is dropped.
struct OfRun(CommitPermit);

impl Drop for OfRun {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Prepared {
    pub(crate) fn permit(&self) -> &CommitPermit {
        &self.permit.0
    }

    /// In which the commit call runs.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Judges the answer of the commit call, and publishes the cells if it was applied.
    pub(crate) fn answered<E: 'static>(
        self,
        context: &RunContext,
        answer: Answer,
        notes: &mut Notes<'_>,
    ) -> Result<Settled, Unsettled<E>> {
        if matches!(answer, Ok(Ok(_))) {
            // First, so that no panic from here on undoes a part of what is applied.
            notes.drop_undo();
        }
        let answer = match (self.permit.0.end(), answer) {
            (
                Some(why),
                Ok(Err(_)) | Err(EffectError::NotApplied(_) | EffectError::Fenced { .. }),
            ) => Err(EffectError::unknown(why)),
            (_, answer) => answer,
        };
        commit_answered(&self.span, &answer);
        let CommitPermit {
            remaining: slack,
            not_after,
            txn_id,
            ..
        } = self.permit.0;
        let applied = match answer {
            Ok(Ok(applied)) => applied,
            Ok(Err(declined)) => return Err(Unsettled::No(declined.into_cause())),
            Err(EffectError::NotApplied(error)) => {
                return Err(Unsettled::No(Cause::NotApplied(error)));
            }
            Err(EffectError::Fenced { seen }) => return Err(Unsettled::No(Cause::Fenced { seen })),
            Err(EffectError::Unknown(error)) => return Err(Unsettled::InDoubt { txn_id, error }),
        };
        let has_cells = !self.cells.is_empty();
        let published = self.cells.publish_reserved();
        // After the last effect: the call, or the publishing, may have stalled. A fence checks the
        // change of the call only.
        let is_live = context.lease().look_strict().is_ok();
        // Tokens that may not grow prove nothing.
        let is_fenced = applied.is_fenced() && context.lease().is_fencing();
        let proof = match is_fenced {
            true if is_live || !has_cells => CommitProof::Fenced,
            false if is_live => CommitProof::WithinLease,
            _ => return Ok(late(context, slack, not_after, published)),
        };
        if published {
            let end = Ok(proof);
            Ok(Settled { slack, end })
        } else {
            Ok(late(context, slack, not_after, false))
        }
    }
}

fn late(context: &RunContext, slack: Duration, not_after: Stamp, published: bool) -> Settled {
    let late_by = context.lease().clock().stamp().since(&not_after);
    let end = Err(Late { late_by, published });
    Settled { slack, end }
}

impl Settled {
    fn receipt(&self, context: &RunContext, txn_id: Option<TxnId>) -> Receipt {
        Receipt {
            token: context.lease().token(),
            txn_id,
            slack: self.slack,
            proof: self.end.as_ref().ok().copied(),
            locks: context.locks().clone(),
        }
    }

    /// The run is over: calls the hooks and makes the outcome.
    pub(crate) fn finish<T, E>(
        self,
        value: T,
        context: &RunContext,
        txn_id: Option<TxnId>,
        mut notes: Notes<'_>,
    ) -> Result<Committed<T>, RunError<T, E>> {
        let receipt = self.receipt(context, txn_id);
        let token = receipt.token;
        notes.drop_undo();
        for hook in notes.on_committed {
            // Without the panic's message, which may hold secrets. The panic hook of the process
            // prints it.
            if caught(|| hook(&receipt)).is_err() {
                tracing::error!(target: "leasehold::run", %token, "a hook after the commit panicked");
            }
        }
        let locks = receipt.locks;
        match self.end {
            Ok(proof) => Ok(Committed {
                value,
                token,
                slack: self.slack,
                proof,
                locks,
            }),
            Err(Late { late_by, published }) => Err(RunError::CommittedLate {
                locks,
                value,
                token,
                late_by,
                published,
            }),
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::clock::ManualClock;
    use crate::executor::{Applied, GuardedCell, TestHold};
    use crate::model::token::FencingToken;
    use crate::settings::Settings;

    const LATE: Duration = Duration::from_millis(3);

    fn hold(clock: &ManualClock, is_fencing: bool) -> TestHold {
        let key = "accounts/7".parse().expect("valid");
        let token = FencingToken::new(5).expect("valid");
        let make = if is_fencing {
            TestHold::new
        } else {
            TestHold::without_fencing
        };
        let ttl = Duration::from_secs(10);
        make(clock.clone(), &Settings::default(), key, token, ttl)
    }

    /// A run that writes a cell, and whose publishing a reader holds up until the lease is over by
    /// `LATE`.
    fn run_with_a_slow_reader(
        is_fencing: bool,
        commit: Option<Applied>,
    ) -> Result<Committed<()>, RunError<()>> {
        let clock = ManualClock::new();
        let hold = hold(&clock, is_fencing);
        let cell = GuardedCell::new(0);
        let (asked, locked) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                asked.wait();
                let terms = &cell.content.terms;
                let reader = terms.read();
                locked.wait();
                // A lock that readers have is refused to further ones while a writer waits.
                while terms.try_read().is_some() {
                    thread::yield_now();
                }
                clock.advance(hold.lease().remaining() + LATE);
                drop(reader);
            });
            let stall = || {
                asked.wait();
                locked.wait();
            };
            hold.executor().guarded(|tx| {
                *tx.write(&cell) += 1;
                match commit {
                    Some(applied) => drop(tx.commit_with(move |_| {
                        stall();
                        Ok(applied)
                    })),
                    None => stall(),
                }
                Ok(())
            })
        })
    }

    #[test]
    fn cells_that_appeared_after_the_lease_are_late_on_every_path() {
        for is_fencing in [true, false] {
            for commit in [None, Some(Applied::plain()), Some(Applied::fenced())] {
                match run_with_a_slow_reader(is_fencing, commit) {
                    Err(RunError::CommittedLate {
                        late_by, published, ..
                    }) => assert_eq!((late_by, published), (LATE, true)),
                    other => panic!("fencing={is_fencing} commit={commit:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn cells_that_appeared_within_the_lease_are_committed() {
        for (is_fencing, expected) in [
            (true, CommitProof::Local),
            (false, CommitProof::WithinLease),
        ] {
            let hold = hold(&ManualClock::new(), is_fencing);
            let cell = GuardedCell::new(0);
            let done = hold.executor().guarded(|tx| {
                *tx.write(&cell) += 1;
                Ok(())
            });
            assert_eq!(done.unwrap().proof, expected);
        }
    }
}
