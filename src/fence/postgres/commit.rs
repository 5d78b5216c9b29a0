//! A fenced transaction as the commit of a guarded run: enter, the user's work, seal, `COMMIT`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::Error as PgError;
use tokio_postgres::types::Type;

use super::connection::{Both, Connection, Plain};
use super::transaction::{PgDone, PgStop, PgTransaction, Stop};
use super::{Shared, fault, milliseconds};
use crate::fence::sql::{ENDED_BEFORE, FENCED, Phase, Verdict, judge, postgres};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey};
use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::BoxError;
use crate::model::token::FencingToken;

/// For how long after the lease the server keeps a transaction whose client hangs.
const AFTER_THE_LEASE: Duration = Duration::from_secs(1);
/// For how long a commit whose process was stopped until the lease was over waits for its answer.
const LATE: Duration = Duration::from_millis(400);
/// The pause before a doubt is asked about again.
const PAUSE: Duration = Duration::from_millis(20);

/// The work's side: it runs between `enter` and `seal`.
pub(super) async fn commit<V, R, Fut>(
    shared: &Shared,
    permit: &CommitPermit,
    work: impl FnOnce(PgTransaction) -> Fut,
) -> Result<Result<Applied<V>, R>, EffectError>
where
    Fut: Future<Output = Result<PgDone<V>, PgStop<R>>>,
{
    let attempt = Attempt { shared, permit };
    let connection = attempt.enter().await?;
    let transaction = PgTransaction::new(connection.client.clone());
    let was_ended = transaction.was_ended();
    let worked = shared
        .clock
        .timeout(attempt.before_the_end(), work(transaction))
        .await;
    let was_ended = || was_ended.load(Ordering::Acquire);
    let Some(worked) = worked else {
        // Without a word to the server, whose answer might not come either.
        drop(connection);
        let error =
            "the work of the transaction was not done within the lease; COMMIT was not sent";
        return Err(if was_ended() {
            ended()
        } else {
            EffectError::not_applied(error)
        });
    };
    match worked {
        Ok(PgDone { transaction, value }) => {
            drop(transaction);
            if was_ended() {
                return Err(ended());
            }
            let applied = attempt.seal_and_commit(connection).await?;
            Ok(Ok(applied.with(value)))
        }
        Err(PgStop(Stop::Refused(transaction, why))) => {
            drop(transaction);
            attempt.roll_back(connection, was_ended()).await?;
            Ok(Err(why))
        }
        Err(PgStop(Stop::Failed(error))) => {
            attempt.roll_back(connection, was_ended()).await?;
            Err(EffectError::not_applied(error))
        }
    }
}

struct Attempt<'a> {
    shared: &'a Shared,
    permit: &'a CommitPermit,
}

impl Attempt<'_> {
    fn left(&self) -> Duration {
        let now = self.shared.clock.stamp();
        self.permit.not_after.since(&now)
    }

    /// How long what comes before `COMMIT` may take: it ends while the run can still be given its proof that nothing was
    /// applied. After the lease the run is in doubt.
    fn before_the_end(&self) -> Duration {
        (self.left() * 9 / 10).max(LATE)
    }

    /// How long an answer is waited for: half of what is left, so that a doubt can be resolved in the other half.
    fn patience(&self) -> Duration {
        (self.left() / 2).max(LATE)
    }

    /// A connection whose transaction has entered the fence.
    async fn enter(&self) -> Result<Connection, EffectError> {
        let connection = self.shared.pool.take().await;
        let connection = connection.map_err(EffectError::not_applied)?;
        let (keys, tokens) = columns(self.permit.locks());
        let name = self.permit.txn_id.to_string();
        let limit = milliseconds(self.left() + AFTER_THE_LEASE);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
            (&keys, Type::TEXT_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&name, Type::TEXT),
            (&limit, Type::INT4),
        ];
        let asked = connection.ask_beside(postgres::ENTER, &parameters, Plain::Before("BEGIN"));
        let answered = self
            .shared
            .clock
            .timeout(self.before_the_end(), asked)
            .await;
        let Some(Both { asked, plain }) = answered else {
            let error = "the fence was not entered within the lease; COMMIT was not sent";
            return Err(EffectError::not_applied(error));
        };
        match (plain, asked) {
            (Ok(()), Ok(_)) => Ok(connection),
            (Err(error), _) => Err(EffectError::not_applied(error)),
            (Ok(()), Err(error)) => Err(self.refused(connection, error).await),
        }
    }

    /// Why the fence was not entered. Nothing is sent after it in that transaction.
    async fn refused(&self, connection: Connection, error: PgError) -> EffectError {
        drop(connection);
        let verdict = judge(Phase::Enter, fault::code(&error));
        match verdict {
            Verdict::Fenced => EffectError::Fenced { seen: seen(&error) },
            Verdict::NotAppliedOrFenced => match self.newer().await {
                Some(seen) => EffectError::Fenced { seen: Some(seen) },
                None => EffectError::not_applied(error),
            },
            Verdict::NotApplied => EffectError::not_applied(error),
            Verdict::InDoubt => self.resolved(error.into()).await.err().unwrap_or_else(|| {
                EffectError::unknown("the name of the commit was taken before it was sent")
            }),
        }
    }

    /// The larger token of one of the keys, if there is one.
    async fn newer(&self) -> Option<FencingToken> {
        for lock in self.permit.locks() {
            match self.shared.raised(&lock.key, lock.token).await {
                Ok(seen) if seen > lock.token => return Some(seen),
                _ => {}
            }
        }
        None
    }

    /// Seals the transaction and commits it. The two are sent together: a `COMMIT` behind a seal that fails rolls back.
    async fn seal_and_commit(&self, connection: Connection) -> Result<Applied, EffectError> {
        if self.left().is_zero() {
            drop(connection);
            let error = "the lease was over before the work was; COMMIT was not sent";
            return Err(EffectError::not_applied(error));
        }
        let name = self.permit.txn_id.to_string();
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
            [(&name, Type::TEXT)];
        let asked = connection.ask_beside(postgres::SEAL, &parameters, Plain::After("COMMIT"));
        let answered = self.shared.clock.timeout(self.patience(), asked).await;
        let Some(Both { asked, plain }) = answered else {
            drop(connection);
            return self.resolved("the commit was not answered".into()).await;
        };
        let error = match (asked, plain) {
            (Ok(_), Ok(())) if !connection.is_unreplicated() => {
                self.shared.pool.put_back(connection);
                return Ok(Applied::fenced());
            }
            // Committed here, and perhaps not by the standby that is promoted next: no question to this server helps.
            (Ok(_), Ok(())) => {
                return Err(EffectError::unknown(
                    "the commit is on the primary, and was not confirmed by its standbys",
                ));
            }
            (Err(error), _) | (Ok(_), Err(error)) => error,
        };
        drop(connection);
        match judge(Phase::Commit, fault::code(&error)) {
            Verdict::InDoubt if fault::code(&error) == Some(ENDED_BEFORE) => Err(ended()),
            Verdict::InDoubt => self.resolved(error.into()).await,
            _ => Err(EffectError::not_applied(error)),
        }
    }

    /// Rolls the transaction back. An error if a statement of the work may have committed it.
    async fn roll_back(&self, connection: Connection, was_ended: bool) -> Result<(), EffectError> {
        if was_ended {
            return Err(ended());
        }
        let rolled_back = connection.client.batch_execute("ROLLBACK");
        if let Some(Ok(())) = self.shared.clock.timeout(LATE, rolled_back).await {
            self.shared.pool.put_back(connection);
        }
        Ok(())
    }

    /// Asks what became of the commit for as long as the run has time.
    async fn resolved(&self, error: BoxError) -> Result<Applied, EffectError> {
        let doubt = Doubt::new(self.permit.locks().to_vec(), self.permit.txn_id);
        let end = self
            .shared
            .clock
            .stamp()
            .plus(self.left().max(AFTER_THE_LEASE));
        loop {
            let left = end.since(&self.shared.clock.stamp());
            if left.is_zero() {
                return Err(EffectError::unknown(error));
            }
            let asked = self.shared.resolved(&doubt, left);
            match self.shared.clock.timeout(left, asked).await {
                Some(Ok(Resolution::Applied)) => return Ok(Applied::fenced()),
                Some(Ok(Resolution::NotApplied)) => return Err(EffectError::not_applied(error)),
                Some(Err(_)) | None => self.shared.clock.sleep(PAUSE).await,
            }
        }
    }
}

/// What the work changed after the end of the transaction stayed, whatever became of the transaction.
fn ended() -> EffectError {
    EffectError::unknown(
        "a statement of the work ended the transaction, or may have; leave COMMIT and ROLLBACK to the fence",
    )
}

/// The larger token, where `enter` refused.
fn seen(error: &PgError) -> Option<FencingToken> {
    let answer = error
        .as_db_error()
        .filter(|answer| answer.code().code() == FENCED)?;
    let number = answer.detail()?.parse().ok()?;
    FencingToken::new(number).ok()
}

/// Keys and tokens as the statements take them. A token is below 2^53.
pub(super) fn columns(locks: &[HeldKey]) -> (Vec<&str>, Vec<i64>) {
    let keys = locks.iter().map(|lock| lock.key.as_str());
    let tokens = locks.iter().map(|lock| super::number(lock.token));
    (keys.collect(), tokens.collect())
}
