//! A fenced transaction as the commit of a guarded run: enter, the user's work, seal, `COMMIT`.

use std::time::Duration;

use futures_util::future::try_join;
use tokio_postgres::Error as PgError;

use super::connection::{Answered, FenceConnection};
use super::transaction::{PgDone, PgStop, PgTransaction, Stop};
use super::{Shared, fault, milliseconds};
use crate::fence::in_run::{LATE, before_the_commit, patience, resolve_within};
use crate::fence::sql::{ENDED_BEFORE, FENCED, OF_A_DUMP, Phase, TOO_OLD, Verdict, judge};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey};
use crate::model::doubt::Doubt;
use crate::model::error::{BoxError, Ended, Error, ErrorKind};
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;
use crate::postgres::store::waits;

/// What the work may have left in the session, which is another run's next: settings, the role,
/// advisory locks, cursors, subscriptions, temporary tables, the last number of a sequence.
/// Prepared statements stay, because the driver's are among them.
const RESET: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; SELECT pg_catalog.pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES";

/// After how many answers [`committing`] is done: those to the seal and to `COMMIT`.
const COMMITTED: usize = 2;

/// For how long after the lease the server keeps a transaction whose client hangs.
const AFTER_THE_LEASE: Duration = Duration::from_secs(1);

/// The work's side: it runs between `enter` and `seal`.
pub(super) async fn commit<V, R, Fut>(
    shared: &Shared,
    permit: &CommitPermit,
    work: impl FnOnce(PgTransaction) -> Fut,
) -> Result<Result<Applied<V>, R>, EffectError>
where
    Fut: Future<Output = Result<PgDone<V>, PgStop<R>>>,
{
    let attempt = FencedCommit { shared, permit };
    let limit = || attempt.before_the_end();
    let connection = attempt.connected(shared.pool.take(shared.is_pipelined));
    let connection = connection.await?;
    let (connection, until, worked) = if connection.is_guarded {
        let transaction = PgTransaction::new(connection.link.client.clone());
        let worked = async {
            let worked = shared.clock.timeout(limit(), work(transaction));
            Ok(worked.await)
        };
        // The first poll of `enter` sends it: what the work sends is behind it, and is executed in
        // its transaction, or in none if `BEGIN` was cancelled. There it cannot write.
        match try_join(attempt.enter(&connection), worked).await {
            Ok((until, worked)) => (connection, until, worked),
            Err(refused) => {
                // Nothing is sent after it in that transaction.
                drop(connection);
                return Err(attempt.why_not(refused).await);
            }
        }
    } else {
        let (connection, until) = attempt.entered(connection).await?;
        let transaction = PgTransaction::new(connection.link.client.clone());
        let worked = shared.clock.timeout(limit(), work(transaction)).await;
        (connection, until, worked)
    };
    let Some(worked) = worked else {
        // Without a word to the server, whose answer might not come either.
        let error =
            "the work of the transaction was not done within the lease; COMMIT was not sent";
        drop(connection);
        return Err(EffectError::not_applied(error));
    };
    match worked {
        Ok(PgDone { transaction, value }) => {
            let is_its_own = transaction.is_of(&connection.link.client);
            drop(transaction);
            if !is_its_own {
                let error = "the work ended another transaction than its own; COMMIT was not sent";
                drop(connection);
                return Err(EffectError::not_applied(error));
            }
            let applied = attempt.seal_and_commit(connection, until).await?;
            Ok(Ok(applied.with(value)))
        }
        Err(PgStop(Stop::Refused(transaction, why))) => {
            drop(transaction);
            attempt.roll_back(connection).await;
            Ok(Err(why))
        }
        Err(PgStop(Stop::Failed(error))) => {
            attempt.roll_back(connection).await;
            Err(EffectError::not_applied(error))
        }
    }
}

/// The end of the lease, in microseconds since 1970 by the server's clock; `None`: the server did
/// not say its time.
type Until = Option<i64>;

struct FencedCommit<'a> {
    shared: &'a Shared,
    permit: &'a CommitPermit,
}

impl FencedCommit<'_> {
    fn left(&self) -> Duration {
        let now = self.shared.clock.stamp();
        self.permit.not_after.since(&now)
    }

    /// How long what comes before `COMMIT` may take: it ends while the run can still be given its
    /// proof that nothing was applied. After the lease the run is in doubt.
    fn before_the_end(&self) -> Duration {
        before_the_commit(self.left())
    }

    /// A connection, if there is one in time.
    async fn connected(
        &self,
        connecting: impl Future<Output = Result<FenceConnection, Error>>,
    ) -> Result<FenceConnection, EffectError> {
        let limit = self.before_the_end();
        let connected = self.shared.clock.timeout(limit, connecting).await;
        let connected = connected.unwrap_or_else(|| {
            Err(Error::unavailable(
                "no connection to postgresql was made within the lease; COMMIT was not sent",
            ))
        });
        connected.map_err(EffectError::not_applied)
    }

    /// Begins a transaction that has entered the fence, and answers the end of the lease by the
    /// server's clock: early, by the time of the answer. The error is `None` if no answer came.
    async fn enter(&self, connection: &FenceConnection) -> Result<Until, Option<PgError>> {
        let limit = milliseconds(self.left() + AFTER_THE_LEASE);
        let statements = entering(self.permit.locks(), self.permit.txn_id, limit);
        let begin = if connection.is_guarded {
            "BEGIN READ WRITE"
        } else {
            "BEGIN"
        };
        let statements = format!("{begin}; {statements}");
        let mut seen = Answered::default();
        let asked = connection.run_and_see(&statements, &mut seen);
        let limit = self.before_the_end();
        let answered = self.shared.clock.timeout(limit, asked).await;
        answered.map_or(Err(None), |answer| answer.map_err(Some))?;
        // Below 2^53, so the number is exact.
        Ok(seen.number.map(|now| now as i64 + micros(self.left())))
    }

    /// A connection in whose transaction the fence was entered. A kept connection that died
    /// unnoticed is replaced: its transaction, if there was one, is over, because `COMMIT` was not
    /// sent.
    async fn entered(
        &self,
        mut connection: FenceConnection,
    ) -> Result<(FenceConnection, Until), EffectError> {
        let mut entered = self.enter(&connection).await;
        if let Err(Some(error)) = &entered
            && connection.was_idle
            && fault::is_lost(error)
        {
            connection = self.connected(self.shared.pool.dial()).await?;
            entered = self.enter(&connection).await;
        }
        match entered {
            Ok(until) => Ok((connection, until)),
            Err(refused) => {
                drop(connection);
                Err(self.why_not(refused).await)
            }
        }
    }

    /// Why the fence was not entered.
    async fn why_not(&self, error: Option<PgError>) -> EffectError {
        let Some(error) = error else {
            let error = "the fence was not entered within the lease; COMMIT was not sent";
            return EffectError::not_applied(error);
        };
        if fault::code(&error) == Some(OF_A_DUMP) {
            return EffectError::not_applied(of_a_dump(error));
        }
        if fault::code(&error) == Some(TOO_OLD) {
            let text = "the name of the commit is older than those that were deleted, so nothing was begun: sqlstate=LH004; \
                check the clock of this machine";
            return EffectError::not_applied(Error::invalid(text).because(error));
        }
        match judge(Phase::Enter, fault::code(&error)) {
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

    /// Seals the transaction and commits it. The two are sent together: a `COMMIT` behind a seal
    /// that fails is not executed. The reset is in the same request, because a pooler may give the
    /// next one to another session, or let it wait for one.
    ///
    /// The server refuses a `COMMIT` that it executes after `until`: this process may be stopped
    /// here, and the request on its way.
    async fn seal_and_commit(
        &self,
        connection: FenceConnection,
        until: Until,
    ) -> Result<Applied, EffectError> {
        let Some(until) = until else {
            drop(connection);
            return Err(EffectError::not_applied(older_schema()));
        };
        if self.left().is_zero() {
            drop(connection);
            let error = "the lease was over before the work was; COMMIT was not sent";
            return Err(EffectError::not_applied(error));
        }
        let statements = format!("{}; {RESET}", committing(self.permit.txn_id, until));
        let mut seen = Answered::default();
        self.permit.sends();
        let asked = connection.run_and_see(&statements, &mut seen);
        let clock = &self.shared.clock;
        let answered = clock.timeout(patience(self.left()), asked).await;
        // An error or a silence after that answer is one of the reset.
        if seen.answers >= COMMITTED {
            // Committed here, and perhaps not by the standby that is promoted next: no question to
            // this server helps.
            if !self.is_replicated(&connection, &seen).await {
                return Err(EffectError::unknown(
                    "the commit is on the primary, and was not confirmed by its standbys",
                ));
            }
            if matches!(answered, Some(Ok(()))) {
                self.shared.committed(connection);
            }
            return Ok(Applied::fenced());
        }
        let Some(Err(error)) = answered else {
            drop(connection);
            return self.resolved("the commit was not answered".into()).await;
        };
        drop(connection);
        match judge(Phase::Commit, fault::code(&error)) {
            Verdict::InDoubt if fault::code(&error) == Some(ENDED_BEFORE) => Err(ended()),
            Verdict::InDoubt => self.resolved(error.into()).await,
            _ => Err(EffectError::not_applied(error)),
        }
    }

    /// Whether the standbys have it that the server waits for.
    async fn is_replicated(&self, connection: &FenceConnection, seen: &Answered) -> bool {
        let link = &connection.link;
        if link.is_unreplicated() {
            return false;
        }
        let Some(since) = seen.number else {
            return true;
        };
        let limit = patience(self.left());
        let waited = self.shared.clock.timeout(limit, link.has_waited(since));
        waited.await == Some(true)
    }

    /// Rolls the transaction back.
    async fn roll_back(&self, mut connection: FenceConnection) {
        // Whoever still has the transaction could send statements behind ROLLBACK: in none, or in
        // that of a later run.
        if !connection.is_ours_alone() {
            return;
        }
        let statements = format!("ROLLBACK; {RESET}");
        let rolled_back = connection.run(&statements);
        if let Some(Ok(())) = self.shared.clock.timeout(LATE, rolled_back).await {
            self.shared.pool.put_back(connection);
        }
    }

    /// Asks what became of the commit for as long as the run has time.
    async fn resolved(&self, error: BoxError) -> Result<Applied, EffectError> {
        let doubt = Doubt::new(self.permit.locks().to_vec(), self.permit.txn_id);
        let ask = |left| self.shared.resolved(&doubt, left);
        resolve_within(&self.shared.clock, self.permit.not_after, error, ask).await
    }
}

/// What the work changed after the end of the transaction stayed, whatever became of the
/// transaction.
fn ended() -> EffectError {
    EffectError::unknown(
        "a statement of the work ended the transaction, or may have; leave COMMIT and ROLLBACK to the fence",
    )
}

fn older_schema() -> Error {
    Error::invalid(
        "the schema of the fence is of an older version; run PgFence::create_schema or the text fence::sql::postgres::SCHEMA as the owner of the data",
    )
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 2)
}

/// What to do where the fence is older than its holders.
fn of_a_dump(error: PgError) -> Error {
    let text = "the fence is from a dump, and was not raised for this holder since: sqlstate=LH009; \
        acquire the lock again, or, if no lock is tied to the fence, stop all holders of before and run as \
        its owner: UPDATE leasehold.fence_meta SET life = leasehold.fence_life()";
    Error::new(ErrorKind::Lost(Ended::Gone), text).because(error)
}

/// The larger token, where `enter` refused.
fn seen(error: &PgError) -> Option<FencingToken> {
    let answer = error
        .as_db_error()
        .filter(|answer| answer.code().code() == FENCED)?;
    let number = answer.detail()?.parse().ok()?;
    FencingToken::new(number).ok()
}

/// The statement of [`ENTER`](crate::fence::sql::postgres::ENTER). With parameters it could not be
/// one request with `BEGIN`. No text in it needs an escape: the letters of a key are none that end
/// a string.
fn entering(locks: &[HeldKey], name: TxnId, limit: i32) -> String {
    let (keys, tokens) = columns(locks);
    let keys = keys.join("\",\"");
    let tokens: Vec<_> = tokens.iter().map(ToString::to_string).collect();
    let tokens = tokens.join(",");
    format!("SELECT leasehold.enter('{{\"{keys}\"}}', '{{{tokens}}}', '{name}', {limit})")
}

/// [`SEAL`](crate::fence::sql::postgres::SEAL) and `COMMIT`.
fn committing(name: TxnId, until: i64) -> String {
    let waits = waits!();
    format!("SELECT leasehold.seal('{name}', {until}), {waits} AS waits; COMMIT")
}

/// Keys and tokens as the statements take them. A token is below 2^53.
pub(super) fn columns(locks: &[HeldKey]) -> (Vec<&str>, Vec<i64>) {
    let keys = locks.iter().map(|lock| lock.key.as_str());
    let tokens = locks.iter().map(|lock| super::number(lock.token));
    (keys.collect(), tokens.collect())
}
