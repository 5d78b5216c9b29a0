//! The fenced transaction of a run: enter, seal and `COMMIT`.

use std::time::Duration;

use futures_util::TryStreamExt;
use leasehold::fence::in_run::patience;
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

/// Enters the fence; the end of the lease by the server's clock.
pub(super) async fn enter(
    transaction: &mut Transaction<'_, Postgres>,
    run: &Run<'_>,
) -> Result<i64, Stop> {
    let (keys, tokens) = columns(run.permit.locks());
    let (name, limit) = (
        run.permit.txn_id,
        milliseconds(run.left() + AFTER_THE_LEASE),
    );
    let enter = format!("SELECT leasehold.enter({keys}, {tokens}, '{name}', {limit}) AS answer");
    let entered = one_row(transaction, &enter).await;
    let entered = entered.map_err(why_not)?;
    let now: i64 = entered.try_get("answer").map_err(Stop::not_applied)?;
    let left = i64::try_from(run.left().as_micros()).unwrap_or(i64::MAX / 2);
    Ok(now.saturating_add(left))
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
        _ => Stop::AskTheName(error.into()),
    }
}

/// What the work sent after its own `COMMIT` or `ROLLBACK` stays, whatever became of the
/// transaction: the seal says whether there was one.
pub(super) async fn witness(
    transaction: &mut Transaction<'_, Postgres>,
    run: &Run<'_>,
) -> Result<(), Stop> {
    let seal = format!("SELECT leasehold.seal('{}', NULL)", run.permit.txn_id);
    match (&mut **transaction).execute(&*seal).await {
        Err(error) if fault::has_ended_its_transaction(&error) => Err(ended()),
        // It was aborted, or the connection is lost.
        _ => Ok(()),
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
    until: i64,
    run: &Run<'_>,
) -> Result<(), Stop> {
    let name = run.permit.txn_id;
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
                Verdict::InDoubt => Err(Stop::AskTheName(error.into())),
                _ => Err(Stop::not_applied(error)),
            }
        }
        _ => Err(Stop::AskTheName("the commit was not answered".into())),
    }
}
