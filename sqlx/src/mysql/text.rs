//! The fence's statements as text with their values, and the answers to a request of several.
//!
//! Savepoints cannot be prepared, and several statements go in one request.

use std::time::Duration;

use futures_util::TryStreamExt;
use leasehold::FencingToken;
use sqlx::mysql::MySqlRow;
use sqlx::{Either, Executor, MySqlConnection, Row};

/// How long a transaction of the fence's own waits for each row: a second.
pub(super) const WAIT: &str = "SET @leasehold_wait = @@SESSION.innodb_lock_wait_timeout; \
     SET SESSION innodb_lock_wait_timeout = 1";
pub(super) const UNWAIT: &str = "SET SESSION innodb_lock_wait_timeout = @leasehold_wait";

/// A value in a statement.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    /// Of a key or a name of a commit: no letter of these ends a string.
    Text(&'a str),
    Number(i64),
}

/// The statement with a value at each `?`, in order.
pub(super) fn filled(statement: &str, values: &[Value<'_>]) -> String {
    let mut parts = statement.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (value, part) in values.iter().zip(parts) {
        match value {
            Value::Text(letters) => text.push_str(&format!("'{letters}'")),
            Value::Number(number) => text.push_str(&number.to_string()),
        }
        text.push_str(part);
    }
    text
}

/// What the server answered to a request, up to its end or the first error.
#[derive(Default)]
pub(super) struct Answers {
    /// How many rows each statement has changed; of those that have ended.
    pub(super) changed: Vec<u64>,
    pub(super) rows: Vec<MySqlRow>,
    pub(super) error: Option<sqlx::Error>,
}

impl Answers {
    /// The rows, if every statement was executed.
    pub(super) fn rows(self) -> sqlx::Result<Vec<MySqlRow>> {
        self.error.map_or(Ok(self.rows), Err)
    }

    /// The last row.
    pub(super) fn row(self) -> sqlx::Result<MySqlRow> {
        self.rows()?.pop().ok_or(sqlx::Error::RowNotFound)
    }
}

/// Sends several statements in one request. What follows an error is not executed.
pub(super) async fn ask(sql: &mut MySqlConnection, request: &str) -> Answers {
    let mut answers = Answers::default();
    let mut stream = sql.fetch_many(request);
    loop {
        match stream.try_next().await {
            Ok(Some(Either::Left(done))) => answers.changed.push(done.rows_affected()),
            Ok(Some(Either::Right(row))) => answers.rows.push(row),
            Ok(None) => break,
            Err(error) => {
                answers.error = Some(error);
                break;
            }
        }
    }
    drop(stream);
    answers
}

/// A column that is compared byte by byte: sqlx takes it for bytes.
pub(super) fn letters(row: &MySqlRow, column: &str) -> sqlx::Result<String> {
    row.try_get_unchecked(column)
}

/// A token is below 2^53.
pub(super) fn number(token: FencingToken) -> i64 {
    i64::try_from(token.number()).unwrap_or(i64::MAX)
}

pub(super) fn microseconds(span: Duration) -> i64 {
    // Less than what is added to it may reach.
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 2)
}

/// Rounded up, at least one, and at most what the server takes for its time-outs.
pub(super) fn seconds(span: Duration) -> i64 {
    let seconds = i64::try_from(span.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
    seconds.clamp(1, 2_147_483)
}
