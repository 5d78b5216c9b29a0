//! The fenced transaction of a run: enter, seal and `COMMIT`.

use std::time::Duration;

use leasehold::BoxError;
use leasehold::fence::in_run::{LATE, patience};
use leasehold::fence::sql::mysql::{ENTER, IS_DURABLE, LIMIT, MARK, NOW, SEAL, WITNESS};
use leasehold::fence::sql::{Phase, Verdict, mysql};
use leasehold::run::EffectError;
use sqlx::{MySql, Row, Transaction};

use super::text::{Value, ask, filled, microseconds, number, seconds};
use super::{Raised, fault, raise_text};
use crate::database::{Run, Stop};

/// For how long after the lease the server keeps a transaction whose client hangs.
const AFTER_THE_LEASE: Duration = Duration::from_secs(1);

/// How often the fence is entered: once more after it was raised, if it had a smaller token.
const ENTERS: u32 = 2;

/// Of the answers to the last request: that of the third statement of the seal.
const SEALED: usize = 2;

/// How many answers the last request has: three to the seal, and one to `COMMIT`.
const COMMITTED: usize = 4;

/// The end of the lease by the server's clock, in microseconds since 1970: early, by the time of
/// the answer.
#[derive(Debug)]
pub struct Until(i64);

/// Enters the fence of every lock. It is not raised in the same transaction: that would turn a
/// shared lock into an exclusive one, a deadlock as soon as two do it.
pub(super) async fn enter(
    transaction: &mut Transaction<'_, MySql>,
    run: &Run<'_>,
) -> Result<Until, Stop> {
    let limit = Value::Number(seconds(run.left() + AFTER_THE_LEASE));
    let limited = ask(transaction, &filled(LIMIT, &[limit; 3])).await;
    limited.rows().map_err(Stop::not_applied)?;
    let mut refused = None;
    for _ in 0..ENTERS {
        if refused.is_some() {
            raise_first(transaction, run).await?;
        }
        let entered = ask(transaction, &enter_text(run)).await.rows();
        match entered {
            Ok(answers) => return until(&answers, run),
            Err(error) => match mysql::judge(Phase::Enter, fault::number(&error)) {
                Verdict::NotAppliedOrFenced => refused = Some(error),
                Verdict::NotApplied => {
                    let error = fault::into_error("enter the fence", error);
                    return Err(Stop::not_applied(error));
                }
                // Nothing was sent under it.
                _ => return Err(ask_the_name(error)),
            },
        }
    }
    match refused {
        Some(error) => Err(Stop::AskTheFence(error.into())),
        None => unreachable!("it was refused, or answered"),
    }
}

fn enter_text(run: &Run<'_>) -> String {
    let name = run.permit.txn_id.to_string();
    let name = Value::Text(&name);
    let left = Value::Number(microseconds(run.left()));
    let mut text = String::new();
    // In order of key.
    for lock in run.permit.locks() {
        let (key, token) = (
            Value::Text(lock.key.as_str()),
            Value::Number(number(lock.token)),
        );
        text.push_str(&filled(ENTER, &[name, key, token, token, left, key]));
        text.push_str("; ");
    }
    format!("{text}{MARK}; {IS_DURABLE}; {NOW}")
}

/// What [`enter_text`] answers.
fn until(answers: &[sqlx::mysql::MySqlRow], run: &Run<'_>) -> Result<Until, Stop> {
    let [durable, now] = answers else {
        return Err(Stop::not_applied("the database did not answer its clock"));
    };
    let is_durable: i64 = durable.try_get(0).map_err(Stop::not_applied)?;
    if is_durable != 1 {
        return Err(Stop::not_applied(fault::not_durable()));
    }
    let now: i64 = now.try_get(0).map_err(Stop::not_applied)?;
    Ok(Until(now.saturating_add(microseconds(run.left()))))
}

/// Raises the fence of every lock over the same connection, and begins again.
async fn raise_first(transaction: &mut Transaction<'_, MySql>, run: &Run<'_>) -> Result<(), Stop> {
    let ended = ask(transaction, "ROLLBACK").await.rows();
    ended.map_err(Stop::not_applied)?;
    for lock in run.permit.locks() {
        let text = format!(
            "START TRANSACTION; {}; COMMIT",
            raise_text(&lock.key, lock.token)
        );
        let raised = ask(transaction, &text).await.rows();
        let raised = raised.and_then(|rows| Raised::of(&rows));
        let raised = raised
            .map_err(|error| Stop::not_applied(fault::into_error("raise the fence", error)))?;
        let seen = raised.token().map_err(Stop::not_applied)?;
        if seen > lock.token {
            return Err(Stop::Known(EffectError::Fenced { seen: Some(seen) }));
        }
    }
    // Not `BEGIN`, which keeps the settings of the session.
    let begun = ask(transaction, "START TRANSACTION").await.rows();
    begun.map(drop).map_err(Stop::not_applied)
}

fn ask_the_name(error: impl Into<BoxError>) -> Stop {
    Stop::AskTheName {
        error: error.into(),
        standbys: 0,
    }
}

/// Whether the transaction that entered is still open, and undone with what the work sent in it.
/// Otherwise the name says whether a part of it was committed: what the work sent after its end
/// could not write.
pub(super) async fn witness(
    transaction: &mut Transaction<'_, MySql>,
    run: &Run<'_>,
) -> Result<(), Stop> {
    match run.clock.timeout(LATE, ask(transaction, WITNESS)).await {
        Some(answers) => answers.rows().map(drop).map_err(ask_the_name),
        None => Err(ask_the_name(
            "the connection did not answer whether the work had ended the transaction",
        )),
    }
}

/// Seals the transaction and commits it, in one request: a `COMMIT` behind a seal that fails is not
/// executed, and the server compares the time when it begins the seal, however late that is. A seal
/// that waits after that, for `FLUSH TABLES WITH READ LOCK`, passes; the fence's row still orders
/// it.
pub(super) async fn commit(
    mut transaction: Transaction<'_, MySql>,
    until: Until,
    run: &Run<'_>,
) -> Result<(), Stop> {
    let name = run.permit.txn_id.to_string();
    let name = Value::Text(&name);
    let seal = filled(SEAL, &[name, Value::Number(until.0), name]);
    let end = format!("{seal}; COMMIT");
    let asked = ask(&mut transaction, &end);
    let Some(answers) = run.clock.timeout(patience(run.left()), asked).await else {
        return Err(ask_the_name("the commit was not answered"));
    };
    let names = u64::try_from(run.permit.locks().len()).unwrap_or(u64::MAX);
    match answers.error {
        None if answers.changed.len() < COMMITTED => Err(ask_the_name("COMMIT was not answered")),
        None if answers.changed.get(SEALED) == Some(&names) => Ok(()),
        None => Err(Stop::unknown(
            "the commit was not compared with the lease, because the work left the database of the fence; keep USE out of it",
        )),
        // Another transaction than the one that entered, or none.
        Some(error) if answers.changed.is_empty() => Err(ask_the_name(error)),
        Some(error) => match mysql::judge(Phase::Commit, fault::number(&error)) {
            Verdict::NotApplied => Err(Stop::not_applied(error)),
            _ => Err(ask_the_name(error)),
        },
    }
}
