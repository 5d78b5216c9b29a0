//! A fenced transaction as the commit of a guarded run: begin, enter, the user's work, `COMMIT`.

use futures_util::future::BoxFuture;
use leasehold::fence::in_run::{LATE, resolve_within};
use leasehold::run::{Applied, CommitPermit, Doubt, EffectError};
use leasehold::{BoxError, FencingToken};
use sqlx::{Connection, Transaction};

use crate::database::{At, Run, SqlxDatabase, Stop};
use crate::lent::Lent;

pub(crate) async fn commit<DB, V, R, F>(
    at: &At<'_, DB>,
    permit: &CommitPermit,
    work: F,
) -> Result<Result<Applied<V>, R>, EffectError>
where
    DB: SqlxDatabase,
    F: for<'c> FnOnce(&'c mut Transaction<'_, DB>) -> BoxFuture<'c, Result<V, R>> + Send,
    V: Send,
    R: Send,
{
    let run = Run {
        clock: at.clock,
        permit,
    };
    let connection = match run.in_time(Lent::by(at.pool)).await {
        Some(connected) => connected.map_err(EffectError::not_applied)?,
        None => return Err(late("no connection was had")),
    };
    let (resolved, worked) = match in_transaction(connection, &run, work).await {
        Ok(answer) => return Ok(answer.map(|value| Applied::fenced().with(value))),
        Err((Stop::Known(error), _)) => return Err(error),
        Err((Stop::AskTheFence(error), _)) => {
            return Err(match newer(at, permit).await {
                Some(seen) => EffectError::Fenced { seen: Some(seen) },
                None => EffectError::not_applied(error),
            });
        }
        Err((Stop::AskTheName { error, standbys }, worked)) => {
            let at = At {
                standbys,
                ..at.same()
            };
            (resolved(&at, permit, error).await, worked)
        }
    };
    match (resolved, worked) {
        (Err(EffectError::NotApplied(_)), Some(Err(refusal))) => Ok(Err(refusal)),
        (Err(error), _) => Err(error),
        (Ok(applied), Some(Ok(value))) => Ok(Ok(applied.with(value))),
        (Ok(_), _) => Err(EffectError::unknown(
            "the name of the commit was taken before it was sent",
        )),
    }
}

/// The error comes with the answer of the work: its value if `COMMIT` was sent, its error if what
/// became of the transaction is not known.
type Ended<V, R> = Result<Result<V, R>, (Stop, Option<Result<V, R>>)>;

async fn in_transaction<DB, V, R, F>(
    mut connection: Lent<DB>,
    run: &Run<'_>,
    work: F,
) -> Ended<V, R>
where
    DB: SqlxDatabase,
    F: for<'c> FnOnce(&'c mut Transaction<'_, DB>) -> BoxFuture<'c, Result<V, R>> + Send,
{
    let known = |error| (Stop::Known(error), None);
    let begun = run.in_time(connection.begin_with(DB::BEGIN)).await;
    let begun = begun.ok_or_else(|| known(late("the transaction was not begun")))?;
    let mut transaction = begun.map_err(|error| (Stop::not_applied(error), None))?;
    let entered = run.in_time(DB::enter(&mut transaction, run)).await;
    let entered = match entered {
        Some(Ok(entered)) => entered,
        Some(Err(stop)) => {
            let ended = run.clock.timeout(LATE, transaction.rollback()).await;
            give_back(connection, run, matches!(ended, Some(Ok(())))).await;
            return Err((stop, None));
        }
        None => return Err(known(late("the fence was not entered"))),
    };
    let (is_ended, worked) = match run.in_time(work(&mut transaction)).await {
        // Nothing may come between this check and `COMMIT`: the process may have been stopped for a
        // long time.
        Some(Ok(value)) if !run.left().is_zero() => {
            match DB::commit(transaction, entered, run).await {
                Ok(()) => (true, Ok(value)),
                Err(stop) => return Err((stop, Some(Ok(value)))),
            }
        }
        uncommitted => {
            let witness = DB::witness(&mut transaction, run).await;
            let refusal = uncommitted.and_then(Result::err).map(Err);
            if let Err(stop) = witness {
                return Err((stop, refusal));
            }
            let Some(Err(error)) = refusal else {
                return Err(known(late("the work was not done")));
            };
            let ended = run.clock.timeout(LATE, transaction.rollback()).await;
            (matches!(ended, Some(Ok(()))), Err(error))
        }
    };
    give_back(connection, run, is_ended).await;
    Ok(worked)
}

/// `is_ended`: the transaction is over, or an empty one is left.
async fn give_back<DB: SqlxDatabase>(mut connection: Lent<DB>, run: &Run<'_>, is_ended: bool) {
    // A nested transaction that the work leaked keeps the outer one open.
    let is_ended = is_ended && !connection.is_in_transaction();
    let cleaned = async { is_ended && DB::clean(&mut connection).await.is_ok() };
    if run.clock.timeout(LATE, cleaned).await == Some(true) {
        connection.give_back();
    }
}

/// Before `COMMIT` was sent, so nothing was applied.
fn late(what: &str) -> EffectError {
    EffectError::not_applied(format!("{what} within the lease; COMMIT was not sent"))
}

/// The larger token of one of the keys, if there is one.
async fn newer<DB: SqlxDatabase>(at: &At<'_, DB>, permit: &CommitPermit) -> Option<FencingToken> {
    for lock in permit.locks() {
        match DB::raise(at.same(), &lock.key, lock.token).await {
            Ok(seen) if seen > lock.token => return Some(seen),
            _ => {}
        }
    }
    None
}

/// Asks what became of the commit for as long as the run has time.
async fn resolved<DB: SqlxDatabase>(
    at: &At<'_, DB>,
    permit: &CommitPermit,
    error: BoxError,
) -> Result<Applied, EffectError> {
    let doubt = &Doubt::new(permit.locks().to_vec(), permit.txn_id);
    let ask = |left| {
        let at = At {
            wait: at.wait.min(left),
            ..at.same()
        };
        DB::resolve(at, doubt)
    };
    resolve_within(at.clock, permit.not_after, error, ask).await
}
