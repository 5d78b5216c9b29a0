//! The fence's statements as text, and the end of their answers.

use std::time::Duration;

use leasehold::FencingToken;
use leasehold::run::HeldKey;
use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection};

/// The row of a statement, after its end: a row may arrive, and the commit of its statement fail.
pub(super) async fn one_row(sql: &mut PgConnection, statement: &str) -> sqlx::Result<PgRow> {
    let mut rows = sql.fetch_all(statement).await?;
    rows.pop().ok_or(sqlx::Error::RowNotFound)
}

/// A token is below 2^53.
pub(super) fn number(token: FencingToken) -> i64 {
    i64::try_from(token.number()).unwrap_or(i64::MAX)
}

/// At least one: for the server zero means for ever.
pub(super) fn milliseconds(span: Duration) -> i32 {
    i32::try_from(span.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// Keys and tokens as the statements take them. No letter of a key needs an escape.
pub(super) fn columns(locks: &[HeldKey]) -> (String, String) {
    let keys: Vec<_> = locks
        .iter()
        .map(|lock| format!("\"{}\"", lock.key))
        .collect();
    let tokens = locks.iter().map(|lock| number(lock.token).to_string());
    let tokens: Vec<_> = tokens.collect();
    (
        format!("'{{{}}}'", keys.join(",")),
        format!("'{{{}}}'", tokens.join(",")),
    )
}
