//! [`PgTransaction`]: the user's side of a fenced transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error as PgError, Row};

use crate::fence::sql::postgres;
use crate::model::error::BoxError;

/// How long the name of what is done once is kept at most.
const LONGEST_KEEP: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A transaction that has entered the fence. It ends with [`done`](Self::done) or
/// [`refuse`](Self::refuse), which give it back; a transaction that is dropped is rolled back.
///
/// It is over with its run: where the work kept it, or shared it with a task, the run is rolled
/// back, its connection is closed, and a statement that is sent later fails.
///
/// `COMMIT` and `ROLLBACK` are not for you to send: the fence's lock ends with the transaction.
/// They are not executed, and abort it: a syntax error. Savepoints are yours.
///
/// [`query`](Self::query) and its siblings prepare each statement on its first use in a
/// transaction, which takes a round trip more. Behind a pooler that shares connections between
/// transactions (PgBouncer before 1.21), use [`query_typed`](Self::query_typed) and
/// [`execute_typed`](Self::execute_typed): they prepare nothing.
pub struct PgTransaction {
    client: Arc<Client>,
}

/// The end of the work of a transaction that is to be committed.
#[must_use = "return it from the closure: it commits the transaction"]
pub struct PgDone<V> {
    pub(super) transaction: PgTransaction,
    pub(super) value: V,
}

/// The end of the work of a transaction that is to be rolled back: an error of the database, into
/// which `?` turns it, or your own decision.
#[must_use = "return it from the closure: it rolls the transaction back"]
pub struct PgStop<R = BoxError>(pub(super) Stop<R>);

pub(super) enum Stop<R> {
    Failed(PgError),
    Refused(PgTransaction, R),
}

impl<R> From<PgError> for PgStop<R> {
    fn from(error: PgError) -> Self {
        Self(Stop::Failed(error))
    }
}

impl PgTransaction {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self { client }
    }

    /// Whether it is a transaction of this client.
    pub(super) fn is_of(&self, client: &Arc<Client>) -> bool {
        Arc::ptr_eq(&self.client, client)
    }

    /// The work is done: the transaction commits, and `value` comes out of the run.
    ///
    /// # Errors
    ///
    /// None: it is what the closure returns.
    pub fn done<V, R>(self, value: V) -> Result<PgDone<V>, PgStop<R>> {
        Ok(PgDone {
            transaction: self,
            value,
        })
    }

    /// You decide against the commit: the transaction is rolled back, and `why` comes out of the
    /// run as [`Cause::Failed`](crate::Cause::Failed).
    ///
    /// # Errors
    ///
    /// Always: it is what the closure returns.
    pub fn refuse<V, R>(self, why: impl Into<R>) -> Result<PgDone<V>, PgStop<R>> {
        Err(PgStop(Stop::Refused(self, why.into())))
    }

    /// Claims `name` for what this transaction does once: true for the first transaction that is
    /// committed with it, false for each one after that, for `keep`. Then return without a change.
    /// So a job that is repeated (its holder died, or a timer fired twice) has its effect exactly
    /// once:
    ///
    /// ```no_run
    /// # async fn example(lock: leasehold::Lock, fence: leasehold::postgres::PgFence) -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let month = Duration::from_secs(30 * 86_400);
    /// let done = lock.commit(fence.transaction(async move |t| {
    ///     if !t.once("interest@2026-11-26", month).await? {
    ///         return t.done("was done already");
    ///     }
    ///     t.execute("UPDATE account SET cents = cents * 101 / 100", &[]).await?;
    ///     t.done("done now")
    /// }));
    /// println!("{}", done.await?.value);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The name is text of your own, up to 1,000 bytes, and one for the whole database, whatever
    /// the lock. It is written in this transaction, and gone if that is rolled back. A call waits
    /// for an open transaction that claimed the same name. One round trip.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute). A database whose schema is older has no function
    /// `leasehold.once`: create the schema again. Under REPEATABLE READ or SERIALIZABLE a name that
    /// was committed since this transaction began is a serialization failure: it is rolled back,
    /// and when the work is repeated the answer is false.
    ///
    /// # Not promised
    ///
    /// The server's clock ends `keep` (100 years at most): set forward, it forgets names early. A
    /// name has to be kept longer than a repetition may come.
    pub async fn once(&self, name: &str, keep: Duration) -> Result<bool, PgError> {
        let keep = i64::try_from(keep.min(LONGEST_KEEP).as_millis()).unwrap_or(i64::MAX);
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&name, Type::TEXT), (&keep, Type::INT8)];
        let rows = self.client.query_typed(postgres::ONCE, &parameters).await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0))
    }

    /// Runs a statement; how many rows it changed.
    ///
    /// # Errors
    ///
    /// The server's or the driver's. Return it with `?`: the transaction is rolled back.
    pub async fn execute(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        self.client.execute(within(statement), parameters).await
    }

    /// Runs a statement; its rows.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub async fn query(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        self.client.query(within(statement), parameters).await
    }

    /// Runs a statement that answers one row.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute), and if it does not answer exactly one row.
    pub async fn query_one(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, PgError> {
        self.client.query_one(within(statement), parameters).await
    }

    /// Runs a statement that answers at most one row.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute), and if it answers several rows.
    pub async fn query_opt(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, PgError> {
        self.client.query_opt(within(statement), parameters).await
    }

    /// Runs a statement whose parameters have these types; its rows. One round trip, and nothing is
    /// prepared.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub async fn query_typed(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, PgError> {
        self.client.query_typed(within(statement), parameters).await
    }

    /// Runs a statement whose parameters have these types; how many rows it changed. One round
    /// trip, and nothing is prepared.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub async fn execute_typed(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64, PgError> {
        self.client
            .execute_typed(within(statement), parameters)
            .await
    }
}

/// Sent instead of a statement that may end the transaction. It is a syntax error, so the server
/// aborts the transaction, and nothing of the work can be applied behind it.
const NOT_OURS: &str = "leave COMMIT and ROLLBACK to the fence";

/// A statement of the work as it is sent.
fn within(statement: &str) -> &str {
    if ends_a_transaction(statement) {
        return NOT_OURS;
    }
    statement
}

/// Whether a statement may end the transaction that it is in. The extended protocol takes one
/// statement at a time, and none of these can be prepared or run by a function.
fn ends_a_transaction(statement: &str) -> bool {
    let mut rest = after_blank(statement);
    while let Some(after) = rest.strip_prefix(';') {
        rest = after_blank(after);
    }
    let mut words = Words(rest);
    match words.next().as_str() {
        "commit" | "end" | "abort" => true,
        "rollback" => {
            let second = words.next();
            let is_noise = matches!(second.as_str(), "work" | "transaction");
            let second = if is_noise { words.next() } else { second };
            second != "to"
        }
        // A prepared statement may have that name: `PREPARE transaction AS`,
        // `PREPARE transaction (int) AS`.
        "prepare" => {
            let is_transaction = words.next() == "transaction";
            is_transaction && !words.0.starts_with('(') && words.next() != "as"
        }
        _ => false,
    }
}

/// The words that a text begins with, in small letters; an empty one where there is none.
struct Words<'a>(&'a str);

impl Words<'_> {
    fn next(&mut self) -> String {
        let is_other =
            |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '_' | '$');
        let end = self.0.find(is_other).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = after_blank(rest);
        word.to_ascii_lowercase()
    }
}

/// What follows the white space and the comments that a text begins with, as the server reads them.
fn after_blank(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        rest = if let Some(comment) = rest.strip_prefix("--") {
            let end = comment.find(['\n', '\r']).unwrap_or(comment.len());
            &comment[end..]
        } else if rest.starts_with("/*") {
            after_comment(rest)
        } else {
            return rest;
        };
    }
}

/// What follows the comment that a text begins with. Comments of this kind are nested.
fn after_comment(text: &str) -> &str {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(two) = text.as_bytes().get(at..at + 2) {
        match two {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" if depth == 1 => return &text[at + 2..],
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    ""
}

impl fmt::Debug for PgTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgTransaction").finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for PgDone<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDone").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for PgStop<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Stop::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
            Stop::Refused(..) => f.debug_struct("Refused").finish_non_exhaustive(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ends_a_transaction;

    #[test]
    fn a_statement_that_ends_a_transaction_is_known_by_its_first_word() {
        for statement in [
            "COMMIT",
            " ;; commit",
            "-- a\n END",
            "/* b */ -- c\n/**/ROLLBACK",
            "Rollback work",
            "abort",
            "PREPARE TRANSACTION 'a'",
            "/* a /* b */ */ COMMIT",
            "/* a /* b */ c */ COMMIT",
            "/**//*/**/*/COMMIT",
            ";--\r; /* */ COMMIT",
            "COMMIT/* a */AND CHAIN",
            "ROLLBACK -- TO SAVEPOINT a",
            "ROLLBACK  AND CHAIN",
            "ROLLBACK\n/* to */WORK",
            "ROLLBACK TRANSACTION",
            "PREPARE /* p AS */ TRANSACTION\n'a'",
            "prepare transaction'a'",
            "PREPARE TRANSACTION U&'a'",
        ] {
            assert!(ends_a_transaction(statement), "{statement}");
        }
        for statement in [
            "SELECT 1",
            "UPDATE commits SET a = 1",
            "committee",
            "",
            "-- COMMIT",
            "/* /* */ COMMIT */ SELECT 1",
            "/* COMMIT",
            "SAVEPOINT a",
            "ROLLBACK TRANSACTION TO SAVEPOINT a",
            "rollback to a",
            "ROLLBACK  TO SAVEPOINT a",
            "ROLLBACK\n\tTO\x0cSAVEPOINT a",
            "rollback/* undo /* it */ */to a",
            "ROLLBACK -- the last\n WORK\r\n TO a",
            "PREPARE p AS SELECT 1",
            "PREPARE p(int)AS SELECT 1",
            "PREPARE transaction AS SELECT 1",
            "PREPARE transaction (int) AS SELECT 1",
            "PREPARE transactions AS SELECT 1",
            "commit_all",
        ] {
            assert!(!ends_a_transaction(statement), "{statement}");
        }
    }
}
