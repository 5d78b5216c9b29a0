//! The fenced transaction of a run: enter, seal and `COMMIT`.

use std::time::Duration;

use futures_util::TryStreamExt;
use leasehold::BoxError;
use leasehold::fence::in_run::{LATE, patience};
use leasehold::fence::sql::{Phase, Verdict, judge};
use leasehold::run::EffectError;
use sqlx::{Either, Executor, Postgres, Row, Transaction};

use super::fault;
use super::standbys::{NAMES, Standbys};
use super::text::{columns, milliseconds, one_row};
use crate::database::{Run, Stop};

/// For how long after the lease the server keeps a transaction whose client hangs.
const AFTER_THE_LEASE: Duration = Duration::from_secs(1);

/// After how many answers the commit is done: those to the seal and to `COMMIT`.
const COMMITTED: usize = 2;

/// What `enter` answered.
#[derive(Debug)]
pub struct Entered {
    /// The end of the lease by the server's clock, in microseconds since 1970: early, by the time
    /// of the answer.
    until: i64,
    /// Those of before the work: what is read with the seal is not there if `COMMIT` has no answer.
    standbys: Standbys,
}

/// Enters the fence. The work is done behind a savepoint: a transaction that has it, aborted or
/// not, is the one that entered.
pub(super) async fn enter(
    transaction: &mut Transaction<'_, Postgres>,
    run: &Run<'_>,
) -> Result<Entered, Stop> {
    let (keys, tokens) = columns(run.permit.locks());
    let (name, limit) = (
        run.permit.txn_id,
        milliseconds(run.left() + AFTER_THE_LEASE),
    );
    let enter = format!(
        "SELECT leasehold.enter({keys}, {tokens}, '{name}', {limit}) AS answer, {NAMES} AS names; \
         SAVEPOINT leasehold_work"
    );
    let entered = one_row(transaction, &enter).await;
    let entered = entered.map_err(why_not)?;
    let now: i64 = entered.try_get("answer").map_err(Stop::not_applied)?;
    let left = i64::try_from(run.left().as_micros()).unwrap_or(i64::MAX / 2);
    let until = now.saturating_add(left);
    let standbys = Standbys::of(&entered);
    Ok(Entered { until, standbys })
}

/// Why the fence was not entered.
fn why_not(error: sqlx::Error) -> Stop {
    match judge(Phase::Enter, fault::code(&error).as_deref()) {
        Verdict::Fenced => {
            let seen = fault::larger_token(&error);
            Stop::Known(EffectError::Fenced { seen })
        }
        Verdict::NotAppliedOrFenced => Stop::AskTheFence(error.into()),
        Verdict::NotApplied => Stop::not_applied(fault::of_enter(error)),
        // Nothing was sent under it.
        _ => ask_the_name(error, Standbys(0)),
    }
}

fn ask_the_name(error: impl Into<BoxError>, standbys: Standbys) -> Stop {
    Stop::AskTheName {
        error: error.into(),
        standbys: standbys.0,
    }
}

/// What the work sent after its own `COMMIT` or `ROLLBACK` stays, whatever became of the
/// transaction: the savepoint and the seal say whether there was one. Nothing else does: an error
/// may be that of an earlier statement, and a connection busy or lost.
pub(super) async fn witness(
    transaction: &mut Transaction<'_, Postgres>,
    run: &Run<'_>,
) -> Result<(), Stop> {
    let name = run.permit.txn_id;
    let seal =
        format!("ROLLBACK TO SAVEPOINT leasehold_work; SELECT leasehold.seal('{name}', NULL)");
    let sealed = (&mut **transaction).execute(&*seal);
    match run.clock.timeout(LATE, sealed).await {
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) if fault::has_ended_its_transaction(&error) => Err(ended()),
        Some(Err(error)) => Err(Stop::unknown(error)),
        None => Err(Stop::unknown(
            "the connection did not answer whether the work had ended the transaction",
        )),
    }
}

fn ended() -> Stop {
    Stop::unknown(
        "a statement of the work ended the transaction, and what it sent after that was not fenced; leave COMMIT and ROLLBACK to the fence",
    )
}

/// Seals the transaction and commits it. The two are sent together: a `COMMIT` behind a seal that
/// fails is not executed.
///
/// The server refuses a `COMMIT` that it executes after `until`: this process may be stopped here,
/// and the request on its way.
pub(super) async fn commit(
    mut transaction: Transaction<'_, Postgres>,
    entered: Entered,
    run: &Run<'_>,
) -> Result<(), Stop> {
    let (name, until) = (run.permit.txn_id, entered.until);
    // The next transaction is for sqlx, which has one to roll back when it is dropped. It is empty.
    let end =
        format!("SELECT leasehold.seal('{name}', {until}), {NAMES} AS names; COMMIT AND CHAIN");
    let (mut answers, mut standbys) = (0, None);
    let asked = async {
        let mut answered = (&mut *transaction).fetch_many(&*end);
        while let Some(answer) = answered.try_next().await? {
            match answer {
                Either::Left(_) => answers += 1,
                Either::Right(row) => standbys = Some(Standbys::of(&row)),
            }
        }
        sqlx::Result::Ok(())
    };
    let answered = run.clock.timeout(patience(run.left()), asked).await;
    match (answered, standbys) {
        // Committed here, and perhaps not by the standby that is promoted next: no question to this
        // server helps.
        (Some(Ok(())), Some(standbys)) if answers >= COMMITTED => {
            if !standbys.have_it(&mut transaction, run.clock).await {
                return Err(Stop::unknown(
                    "the commit is on the primary, and its standbys are not seen to have it; grant pg_monitor if the role may not see them",
                ));
            }
            Ok(())
        }
        (Some(Err(error)), _) if answers < COMMITTED => {
            match judge(Phase::Commit, fault::code(&error).as_deref()) {
                Verdict::InDoubt if fault::has_ended_its_transaction(&error) => Err(ended()),
                Verdict::InDoubt => Err(ask_the_name(error, entered.standbys)),
                _ if answers > 0 => Err(Stop::not_applied(error)),
                // The seal was refused: perhaps in another transaction.
                _ => {
                    witness(&mut transaction, run).await?;
                    Err(Stop::not_applied(error))
                }
            }
        }
        _ => Err(ask_the_name(
            "the commit was not answered",
            entered.standbys,
        )),
    }
}
