//! A fenced transaction in PostgreSQL.

use std::error::Error;
use std::time::Duration;

use leasehold::executor::{Applied, CommitPermit, Doubt, EffectError, Resolution};
use leasehold::fence::sql::{Phase, Verdict, judge, postgres};
use sqlx::{PgConnection, PgPool};

use crate::Work;

/// How long a resolver waits for a transaction that is open.
const WAIT: Duration = Duration::from_secs(5);

/// What an error of a phase proves.
fn judged(phase: Phase, error: sqlx::Error) -> EffectError {
    let code = error.as_database_error().and_then(|answer| answer.code());
    match judge(phase, code.as_deref()) {
        Verdict::Fenced => EffectError::Fenced { seen: None },
        // Whether the fence shows a larger token is left out here: nothing was applied in either case.
        Verdict::NotApplied | Verdict::NotAppliedOrFenced => EffectError::not_applied(error),
        _ => EffectError::unknown(error),
    }
}

/// Whether the work sent `COMMIT` or `ROLLBACK` itself. What it sent after that stays, whatever became of the name.
fn has_ended_its_transaction(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<sqlx::Error>();
    let answer = error.and_then(sqlx::Error::as_database_error);
    answer.is_some_and(|answer| answer.code().as_deref() == Some("LH003"))
}

/// The keys and tokens of a run, as the statements take them.
fn columns(doubt: &Doubt) -> (Vec<String>, Vec<i64>) {
    let columns = doubt.locks.iter();
    let columns = columns.map(|lock| (lock.key.to_string(), lock.token.number().cast_signed()));
    columns.unzip()
}

fn millis(span: Duration) -> i32 {
    i32::try_from(span.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// The commit of a run: enters the fence of every lock, does the work, and commits.
pub async fn commit<F>(pool: PgPool, permit: CommitPermit, work: F) -> Result<Applied, EffectError>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c> + Send,
{
    let doubt = Doubt::new(permit.locks().to_vec(), permit.txn_id);
    let error = match attempt(&pool, &permit, &doubt, work).await {
        Err(EffectError::Unknown(error)) if !has_ended_its_transaction(&*error) => error,
        answer => return answer,
    };
    match resolve(&pool, &doubt).await {
        Ok(Resolution::Applied) => Ok(Applied::fenced()),
        Ok(Resolution::NotApplied) => Err(EffectError::not_applied(error)),
        Err(_) => Err(EffectError::unknown(error)),
    }
}

async fn attempt<F>(
    pool: &PgPool,
    permit: &CommitPermit,
    doubt: &Doubt,
    work: F,
) -> Result<Applied, EffectError>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c> + Send,
{
    let name = permit.txn_id.to_string();
    let (keys, tokens) = columns(doubt);
    let mut sql = pool.begin().await.map_err(EffectError::not_applied)?;
    let enter = sqlx::query(postgres::ENTER).bind(keys).bind(tokens);
    let enter = enter
        .bind(&name)
        .bind(millis(permit.remaining + Duration::from_secs(1)));
    let entered = enter.execute(&mut *sql).await;
    entered.map_err(|error| judged(Phase::Enter, error))?;
    // A transaction that is dropped is rolled back.
    let worked = work(&mut sql).await;
    worked.map_err(|error| judged(Phase::Work, error))?;
    let seal = sqlx::query(postgres::SEAL).bind(&name);
    let sealed = seal.execute(&mut *sql).await;
    sealed.map_err(|error| judged(Phase::Commit, error))?;
    let committed = sql.commit().await;
    committed.map_err(|error| judged(Phase::Commit, error))?;
    Ok(Applied::fenced())
}

/// Finds out what became of a commit in doubt.
pub async fn resolve(pool: &PgPool, doubt: &Doubt) -> sqlx::Result<Resolution> {
    let (keys, tokens) = columns(doubt);
    let resolve = sqlx::query_scalar(postgres::RESOLVE)
        .bind(keys)
        .bind(tokens);
    let resolve = resolve.bind(doubt.txn_id.to_string()).bind(millis(WAIT));
    let is_applied: bool = resolve.fetch_one(pool).await?;
    Ok(if is_applied {
        Resolution::Applied
    } else {
        Resolution::NotApplied
    })
}
