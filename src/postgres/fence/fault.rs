//! What an error of the driver means to the caller of a fence.

use tokio_postgres::Error as PgError;

use crate::model::error::Error;
pub(super) use crate::postgres::store::code;
use crate::postgres::store::{FULL, not_owned};

/// Whether no answer came because the connection ended.
pub(super) fn is_lost(error: &PgError) -> bool {
    code(error).is_none()
}

/// Why the schema was not created.
pub(super) fn not_created(error: PgError) -> Error {
    if code(&error) == Some("55P03") {
        return Error::unavailable(
            "the schema of the fence was not created, because another session locks a table of it, or creates it: sqlstate=55P03; end that session's transaction (pg_stat_activity, pg_locks), and try again",
        )
        .because(error);
    }
    into_error("create the schema", error)
}

/// The error of a call that can be repeated.
pub(super) fn into_error(what: &str, error: PgError) -> Error {
    let Some(answer) = error.as_db_error() else {
        return Error::unavailable(format!("postgresql did not answer: call={what}; try again"))
            .because(error);
    };
    if let Some(error) = not_owned(&error) {
        return error;
    }
    let code = answer.code().code();
    let details = format!("call={what} sqlstate={code}");
    let error_of = match (code, code.get(..2).unwrap_or_default()) {
        ("3F000" | "42883" | "42P01", _) => {
            return Error::invalid(format!(
                "the schema of the fence is missing: {details}; run PgFence::create_schema or the text fence::sql::postgres::SCHEMA as the owner of the data"
            ));
        }
        ("42501", _) | (_, "28") => Error::denied(format!(
            "postgresql refuses this role: {details}; fix its password, or grant it USAGE on the schema leasehold and EXECUTE on its functions"
        )),
        ("LH004", _) => Error::invalid(format!(
            "what became of the commit can never be known: {details}; check the data, and resolve earlier next time or raise leasehold.fence_meta.names_kept"
        )),
        ("55P03", _) => Error::unavailable(format!(
            "a transaction under another token was not over within the wait: {details}; try again"
        )),
        (FULL, _) => Error::unavailable(format!(
            "the server's disk is full: {details}; make space on it"
        )),
        ("25006", _) => Error::unavailable(format!(
            "the server is read-only: {details}; name the primary, or all servers: postgres://h1,h2/database"
        )),
        _ => Error::unavailable(format!("postgresql refused: {details}; try again")),
    };
    error_of.because(error)
}
