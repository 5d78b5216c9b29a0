//! What an error of the driver means to the caller of a fence.

use leasehold::{Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// The server's number of an error, if it has answered.
pub(super) fn number(error: &sqlx::Error) -> Option<u16> {
    let answer = error.as_database_error()?;
    let answer = answer.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(answer.number())
}

/// A row was not free within `innodb_lock_wait_timeout`.
pub(super) fn is_waiting(error: &sqlx::Error) -> bool {
    number(error) == Some(1205)
}

/// It ended a transaction of the fence's own without an effect: a deadlock, a snapshot that is too
/// old.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1213 | 1020))
}

/// The error of a call that can be repeated.
pub(super) fn into_error(what: &str, error: sqlx::Error) -> Error {
    if matches!(error, sqlx::Error::Configuration(_)) {
        let text = format!("the pool is not one for a fence: call={what}; {error}");
        return Error::new(ErrorKind::Invalid, text);
    }
    let Some(number) = number(&error) else {
        let text = format!("the database did not answer: call={what}; try again");
        return Error::new(ErrorKind::Unavailable, text).because(error);
    };
    let details = format!("call={what} errno={number}");
    let (kind, text) = match number {
        1046 | 1054 | 1146 => (
            ErrorKind::Invalid,
            format!(
                "the tables of the fence are missing or others: {details}; run SqlxFence::create_schema in the database of the data"
            ),
        ),
        1044 | 1045 | 1142 | 1143 | 1227 => (
            ErrorKind::Denied,
            format!(
                "the database refuses this user: {details}; grant it SELECT, INSERT, UPDATE and DELETE on the tables leasehold_*"
            ),
        ),
        _ => (
            ErrorKind::Unavailable,
            format!("the database refused: {details}; try again"),
        ),
    };
    Error::new(kind, text).because(error)
}

/// The server may lose a commit that it has answered.
pub(super) fn not_durable() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this server may lose a commit that it has answered; set innodb_flush_log_at_trx_commit = 1 and, with a binary log, sync_binlog = 1",
    )
}
