//! A fenced transaction in PostgreSQL.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::run::{Applied, CommitPermit, Doubt, EffectError, Resolution};
use leasehold::fence::sql::{Phase, Verdict, judge, postgres};
use sqlx::{PgConnection, PgPool, Postgres, Row, Transaction};

use crate::Work;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a resolver waits for a transaction that is open.
const WAIT: Duration = Duration::from_secs(5);
/// How long the standbys are waited for after a commit that they should have confirmed.
const CONFIRM: Duration = Duration::from_secs(1);
/// Whether so many standbys as the server waits for have all that it has written. A commit whose
/// wait for them was cancelled is answered without an error, with a notice that sqlx does not pass
/// on. The role needs `pg_monitor` to see the standbys.
const CONFIRMED: &str = r"
    SELECT names = '' OR (SELECT count(*) FROM pg_stat_replication
        WHERE sync_state IN ('sync', 'quorum') AND flush_lsn >= pg_current_wal_flush_lsn())
      >= coalesce(substring(names FROM '^\s*(?:first\s|any\s)?\s*(\d+)\s*\(')::int, 1)
    FROM (SELECT lower(current_setting('synchronous_standby_names'))) AS s (names)";

/// What an error of a phase proves.
fn judged(phase: Phase, error: sqlx::Error) -> EffectError {
    match judge(phase, code(&error).as_deref()) {
        Verdict::Fenced => EffectError::Fenced { seen: None },
        // Whether the fence shows a larger token is left out here: nothing was applied in either
        // case.
        Verdict::NotApplied | Verdict::NotAppliedOrFenced => EffectError::not_applied(error),
        _ => EffectError::unknown(error),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    let answer = error.as_database_error()?;
    answer.code().map(Into::into)
}

/// Whether the work sent `COMMIT` or `ROLLBACK` itself. What it sent after that stays, whatever
/// became of the name.
fn has_ended_its_transaction(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<sqlx::Error>();
    error.and_then(code).as_deref() == Some("LH003")
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
    let clock = Clock::system().map_err(EffectError::not_applied)?;
    let left = || permit.not_after.since(&clock.stamp());
    // It ends while the run can still be given its proof that nothing was applied. A transaction
    // that is dropped is rolled back.
    let prepared = prepare(pool, permit, doubt, work, left);
    let sql = match clock.timeout(left() * 9 / 10, prepared).await {
        // Nothing may come between this check and `COMMIT`: the process may have been stopped for a
        // long time.
        Some(Ok(sql)) if !left().is_zero() => sql,
        Some(Err(error)) => return Err(error),
        _ => {
            let error = "the transaction was not ready within the lease; COMMIT was not sent";
            return Err(EffectError::not_applied(error));
        }
    };
    let committed = sql.commit().await;
    committed.map_err(|error| judged(Phase::Commit, error))?;
    let confirmed = confirm(pool, &clock).await;
    confirmed.map_err(EffectError::unknown)?;
    sweep_now_and_then(pool, doubt).await;
    Ok(Applied::fenced())
}

/// All that comes before `COMMIT`. What fails here is not applied, unless the work ended the
/// transaction.
async fn prepare<F>(
    pool: &PgPool,
    permit: &CommitPermit,
    doubt: &Doubt,
    work: F,
    left: impl Fn() -> Duration,
) -> Result<Transaction<'static, Postgres>, EffectError>
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
    let entered = enter.fetch_one(&mut *sql).await;
    let entered = entered.map_err(|error| judged(Phase::Enter, error))?;
    // The end of the lease by the server's clock: the server refuses a `COMMIT` that it executes
    // later.
    let now: i64 = entered.get(0);
    let until = now + i64::try_from(left().as_micros()).unwrap_or(i64::MAX / 2);
    let worked = work(&mut sql).await;
    // Before the next await: after the lease a commit call is not polled again, and its run is in
    // doubt.
    if left().is_zero() {
        let error = "the lease was over before the work was; COMMIT was not sent";
        return Err(EffectError::not_applied(error));
    }
    // Asked after a failure too: `SEAL` is the witness of what the work did to the transaction.
    let sealed = sqlx::query(postgres::SEAL).bind(&name).bind(until);
    match (sealed.execute(&mut *sql).await, worked) {
        (Err(error), _) if has_ended_its_transaction(&error) => Err(EffectError::unknown(error)),
        (_, Err(error)) | (Err(error), _) => Err(EffectError::not_applied(error)),
        (Ok(_), Ok(())) => Ok(sql),
    }
}

/// Deletes old names after about one commit of 256: the end of a name is random. A failure is of no
/// harm: another commit does it.
async fn sweep_now_and_then(pool: &PgPool, doubt: &Doubt) {
    if doubt.txn_id.to_string().ends_with("00") {
        let _ = sqlx::query(postgres::SWEEP).execute(pool).await;
    }
}

/// Waits until the standbys that the server waits for have what was committed.
async fn confirm(pool: &PgPool, clock: &Clock) -> Result<(), BoxError> {
    let confirmed = async {
        loop {
            let asked = sqlx::query_scalar::<_, bool>(CONFIRMED);
            if asked.fetch_one(pool).await? {
                return Ok(());
            }
            clock.sleep(Duration::from_millis(20)).await;
        }
    };
    let confirmed = clock.timeout(CONFIRM, confirmed).await;
    confirmed.unwrap_or_else(|| {
        Err("the commit is on the primary, and its standbys are not seen to have it; grant pg_monitor if the role may not see them".into())
    })
}

/// Finds out what became of a commit in doubt.
pub async fn resolve(pool: &PgPool, doubt: &Doubt) -> Result<Resolution, BoxError> {
    doubt.check()?;
    let (keys, tokens) = columns(doubt);
    let resolve = sqlx::query_scalar(postgres::RESOLVE)
        .bind(keys)
        .bind(tokens);
    let resolve = resolve.bind(doubt.txn_id.to_string()).bind(millis(WAIT));
    let is_applied: bool = resolve.fetch_one(pool).await?;
    confirm(pool, &Clock::system()?).await?;
    Ok(if is_applied {
        Resolution::Applied
    } else {
        Resolution::NotApplied
    })
}
