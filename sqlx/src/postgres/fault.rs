//! What an error of the driver means to the caller of a fence.

use leasehold::{Ended, Error, ErrorKind, FencingToken};
use sqlx::postgres::PgDatabaseError;

pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    let answer = error.as_database_error()?;
    answer.code().map(Into::into)
}

/// The transaction that entered was ended before the seal: its name is not in the session, or its
/// savepoint is not there (25P01: in no transaction).
pub(super) fn has_ended_its_transaction(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("LH003" | "3B001" | "25P01"))
}

/// It ended a call without an effect: a serialization failure or a deadlock.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("40001" | "40P01"))
}

/// The larger token, where `enter` refused.
pub(super) fn larger_token(error: &sqlx::Error) -> Option<FencingToken> {
    let answer = error.as_database_error()?;
    let answer = answer.try_downcast_ref::<PgDatabaseError>()?;
    FencingToken::new(answer.detail()?.parse().ok()?).ok()
}

/// Why `enter` failed, with what to do.
pub(super) fn of_enter(error: sqlx::Error) -> Error {
    if code(&error).as_deref() == Some("LH009") {
        let text = "the fence is from a dump, and was not raised for this holder since: sqlstate=LH009; \
            acquire the lock again, or, if no lock is tied to the fence, stop all holders of before and run as \
            its owner: UPDATE leasehold.fence_meta SET life = leasehold.fence_life()";
        return Error::new(ErrorKind::Lost(Ended::Gone), text).because(error);
    }
    if code(&error).as_deref() == Some("LH004") {
        let text = "the name of the commit is older than those that were deleted, so nothing was begun: sqlstate=LH004; \
            check the clock of this machine";
        return Error::new(ErrorKind::Invalid, text).because(error);
    }
    into_error("enter the fence", error)
}

/// Why the schema was not created.
pub(super) fn not_created(error: sqlx::Error) -> Error {
    if code(&error).as_deref() == Some("55P03") {
        let text = "the schema of the fence was not created, because another session locks a table of it, or creates it: \
            sqlstate=55P03; end that session's transaction (pg_stat_activity, pg_locks), and try again";
        return Error::new(ErrorKind::Unavailable, text).because(error);
    }
    into_error("create the schema", error)
}

/// The error of a call that can be repeated.
pub(super) fn into_error(what: &str, error: sqlx::Error) -> Error {
    let Some(code) = code(&error) else {
        let text = format!("postgresql did not answer: call={what}; try again");
        return Error::new(ErrorKind::Unavailable, text).because(error);
    };
    let details = format!("call={what} sqlstate={code}");
    let (kind, text) = match (code.as_str(), code.get(..2).unwrap_or_default()) {
        ("3F000" | "42883" | "42P01", _) => (
            ErrorKind::Invalid,
            format!(
                "the schema of the fence is missing or older: {details}; run SqlxFence::create_schema or what `leasehold sql postgres` prints, as the owner of the data"
            ),
        ),
        ("42501", _) | (_, "28") => (
            ErrorKind::Denied,
            format!(
                "postgresql refuses this role: {details}; grant it USAGE on the schema leasehold and EXECUTE on its functions"
            ),
        ),
        ("LH004", _) => (
            ErrorKind::Invalid,
            format!(
                "what became of the commit can never be known: {details}; check the data, and resolve earlier next time or raise leasehold.fence_meta.names_kept"
            ),
        ),
        ("LH006", _) => (
            ErrorKind::Denied,
            format!(
                "the schema leasehold is not this role's alone: {details}; let its owner run what `leasehold sql postgres` prints"
            ),
        ),
        ("55P03", _) => (
            ErrorKind::Unavailable,
            format!(
                "a transaction under another token was not over within the wait: {details}; try again"
            ),
        ),
        _ => (
            ErrorKind::Unavailable,
            format!("postgresql refused: {details}; try again"),
        ),
    };
    Error::new(kind, text).because(error)
}
