//! The meaning of the driver's errors: what changed, and what to do. Never a server's text about a
//! statement: it may quote an owner token.

use std::error::Error as StdError;
use std::io;

use tokio_postgres::Error as PgError;
use tokio_postgres::error::Severity;

use super::options::PostgresOptions;
use crate::model::error::Error;
use crate::store::url::is_unknown_host;

/// Why a request has no answer that could be used.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// It was not sent.
    NotSent(Error),
    /// The server refused it. Nothing was done, and nothing will be.
    Refused(PgError),
    /// It was sent, and no answer came, or one that proves nothing.
    Unanswered(&'static str),
}

impl NoAnswer {
    pub(super) fn of(error: PgError) -> Self {
        match code(&error) {
            Some(code) if proves_an_abort(code) => Self::Refused(error),
            _ => Self::Unanswered("the connection ended"),
        }
    }

    /// Whether the server can no longer be used: it became a standby, or is not the one that the
    /// connection was made to.
    pub(super) fn is_of_another_server(&self) -> bool {
        let is_moved = |error: &PgError| code(error) == Some(MOVED) || is_of_a_standby(code(error));
        matches!(self, Self::Refused(error) if is_moved(error))
    }

    /// Whether other calls about the key took too long.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::Refused(error) if code(error) == Some(BLOCKED))
    }

    /// Whether the database's encoding lacks a letter.
    pub(super) fn is_untranslatable(&self) -> bool {
        matches!(self, Self::Refused(error) if code(error) == Some("22P05"))
    }

    /// The same for another that was a part of the request.
    pub(super) fn for_another(&self, doing: &str) -> Self {
        match self {
            Self::NotSent(error) => Self::NotSent(error.clone()),
            Self::Refused(error) => Self::NotSent(refused(error, doing)),
            Self::Unanswered(why) => Self::Unanswered(why),
        }
    }

    /// The error for our caller.
    pub(super) fn into_error(self, doing: &str) -> Error {
        match self {
            Self::NotSent(error) => error,
            Self::Refused(error) => refused(&error, doing),
            Self::Unanswered(why) => Error::in_doubt(format!(
                "postgresql did not confirm it: request={doing} reason={why:?}; it may have been done"
            )),
        }
    }
}

/// The five characters of an error that the server answered, unless it said that it is about to end
/// the connection: then the error is no answer to the request.
pub(crate) fn code(error: &PgError) -> Option<&str> {
    let answer = error.as_db_error()?;
    let is_end = matches!(
        answer.parsed_severity(),
        Some(Severity::Fatal | Severity::Panic)
    );
    (!is_end).then(|| answer.code().code())
}

/// A request is one statement and its own transaction. The server answers it with an ordinary error
/// only before it has written the commit; a failure of the server itself (58, F0, XX) is no such
/// answer.
fn proves_an_abort(code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    !matches!(class, "00" | "01" | "02" | "08" | "58" | "F0" | "XX") && code != "40003"
}

fn is_of_a_standby(code: Option<&str>) -> bool {
    matches!(code, Some("25006" | "55000"))
}

/// Whether the functions are missing that a request calls.
pub(super) fn is_without_schema(error: &PgError) -> bool {
    matches!(code(error), Some("3F000" | "42883" | "42P01"))
}

fn refused(error: &PgError, doing: &str) -> Error {
    let code = code(error).unwrap_or_default();
    let details = format!("request={doing} sqlstate={code}");
    match code {
        _ if is_without_schema(error) => no_schema(&details),
        "42501" => not_permitted(&details),
        "LH002" => Error::unsupported(format!(
            "the locks need transactions that are READ COMMITTED: {details}; set default_transaction_isolation of the role or of the pooler's server connections"
        )),
        "LH005" => Error::invalid(format!(
            "the ttl is longer than the max_ttl of the database allows: {details}; use a shorter ttl"
        )),
        BLOCKED => blocked(doing),
        FULL => Error::unavailable(format!(
            "the server's disk is full, nothing was done: {details}; make space on it"
        )),
        MOVED => Error::unavailable(format!(
            "this is not the server, or not the schema, that the connection was made to, nothing was done: {details}; try again"
        )),
        _ if is_of_a_standby(Some(code)) => standby(&details),
        _ => Error::unavailable(format!(
            "postgresql refused, nothing was done: {details}; try again"
        )),
    }
}

/// What `ask` raises in another life.
const MOVED: &str = "LH008";

/// What the server answers when it finds no space on its disk.
pub(crate) const FULL: &str = "53100";

/// What the server answers after a lock_timeout.
const BLOCKED: &str = "55P03";

/// The error of a request that other calls about the same key, or a lock of a whole table, kept
/// waiting.
pub(super) fn blocked(doing: &str) -> Error {
    Error::unavailable(format!(
        "other calls for this key took too long, nothing was done: request={doing}; try again, and look for open transactions that call the functions of the schema leasehold"
    ))
}

/// The error of an ask that had no turn.
pub(super) fn too_many() -> Error {
    Error::unavailable(
        "too many requests wait for the connection to postgresql, nothing was sent; try again, or lock less at once",
    )
}

/// The error of an ask with a label that the database cannot store.
pub(super) fn untranslatable(label: &str, encoding: &str) -> Error {
    Error::invalid(format!(
        "the encoding of the database lacks a letter of the label: label={label:?} encoding={encoding}; use a label of ASCII letters, or a database with the encoding UTF8"
    ))
}

fn no_schema(details: &str) -> Error {
    Error::invalid(format!(
        "the schema of the locks is missing in this database: {details}; run `leasehold sql postgres | psql -v ON_ERROR_STOP=1` as its owner, or add create=auto to the URL"
    ))
}

fn not_permitted(details: &str) -> Error {
    Error::denied(format!(
        "postgresql refuses this role: {details}; GRANT USAGE ON SCHEMA leasehold to it"
    ))
}

/// What the check of the schema's owners raises.
const NOT_OWNED: &str = "LH006";

/// If something in the schema belongs to a role that this one need not trust.
pub(crate) fn not_owned(error: &PgError) -> Option<Error> {
    let answer = error.as_db_error()?;
    (answer.code().code() == NOT_OWNED).then(|| {
        Error::denied(format!(
            "{}, and its code would run with the rights of this role; drop it if that is not meant, otherwise connect as its owner, or, to use the locks, without create=auto as a role that is no superuser",
            answer.message()
        ))
    })
}

fn standby(details: &str) -> Error {
    Error::unavailable(format!(
        "the server is a standby or read-only: {details}; name the primary, or all servers as h1,h2 in the URL"
    ))
}

/// How the driver describes an answer that is not of its protocol. It has no code for that.
const FOREIGN: [&str; 3] = [
    "bytes remaining on stream",
    "invalid message",
    "unexpected message",
];

/// How the driver describes a host that it did not reach. It has no code for that either.
const NO_CONNECTION: &str = "error connecting to server";

/// Why there is no connection, or none that can be used. A refusal of the handshake names the role
/// and the database, never the password.
pub(crate) fn not_connected(doing: &str, options: &PostgresOptions, error: PgError) -> Error {
    let address = &options.address;
    let Some(answer) = error.as_db_error() else {
        let reason = reason(&error);
        if reason.contains(READ_ONLY) {
            return Error::unavailable(format!(
                "no server of the URL allows writes: address={address}; it is a standby, or transactions of this role or database are read-only: name the primary, or set default_transaction_read_only to off for the role"
            ));
        }
        if let (true, Some(cause)) = (reason.starts_with(NO_CONNECTION), io_error(&error)) {
            return not_reached(doing, address, cause);
        }
        if let Some([why, advice]) = untrusted(&error) {
            return Error::unavailable(format!(
                "postgresql cannot be reached: address={address} request={doing:?} reason={reason:?}; {why}: {advice}"
            ));
        }
        let advice = match reason.as_str() {
            text if FOREIGN.iter().any(|foreign| text.contains(foreign)) => {
                "what answers there is no PostgreSQL; check host and port"
            }
            _ => "check host and port, and that the server runs",
        };
        return Error::unavailable(format!(
            "postgresql cannot be reached: address={address} request={doing:?} reason={reason:?}; {advice}"
        ));
    };
    if let Some(error) = not_owned(&error) {
        return error;
    }
    let code = answer.code().code();
    let details = format!(
        "address={address} request={doing:?} sqlstate={code} reason={:?}",
        answer.message()
    );
    match (code, code.get(..2).unwrap_or_default()) {
        _ if is_without_schema(&error) => no_schema(&format!("address={address} sqlstate={code}")),
        // No line of pg_hba.conf, or one that rejects.
        ("28000", _) if options.dialer.verifies().is_none() => Error::denied(format!(
            "postgresql refuses the user, or a connection without TLS: {details}; write sslmode=verify-full if the server demands TLS, and check the user in the URL, and pg_hba.conf"
        )),
        (_, "28") => Error::denied(format!(
            "postgresql refuses the user or the password: {details}; check both in the URL, and pg_hba.conf"
        )),
        ("42501", _) => not_permitted(&details),
        ("LH007", _) => Error::invalid(format!(
            "the schema of the locks is of another version: {details}; while no client runs, drop the tables claim, token, withdrawn and lock_meta, and create the schema again"
        )),
        ("3D000", _) => Error::invalid(format!(
            "there is no such database: {details}; write one that exists behind the host of the URL"
        )),
        (code, _) if is_of_a_standby(Some(code)) => standby(&details),
        _ => Error::unavailable(format!(
            "postgresql refuses the connection: {details}; try later"
        )),
    }
}

/// How the driver describes a server of which it was to be a primary. It has no code for that
/// either.
const READ_ONLY: &str = "database does not allow writes";

/// There is no connection, for a reason that the system gives.
fn not_reached(doing: &str, address: &str, cause: io::Error) -> Error {
    let error = if is_unknown_host(&cause) {
        Error::unavailable(format!(
            "host name not found: address={address}; check the host in the URL, and the name service"
        ))
    } else {
        Error::unavailable(format!(
            "postgresql cannot be reached: address={address} request={doing:?} reason={:?}; check host and port, and that the server runs",
            cause.kind()
        ))
    };
    error.because(cause)
}

/// The network error inside. It quotes nothing that we sent.
fn io_error(error: &PgError) -> Option<io::Error> {
    let inner = error.source()?.downcast_ref::<io::Error>()?;
    Some(io::Error::new(inner.kind(), inner.to_string()))
}

/// Why the TLS handshake failed, and what to do; `None` if it did not.
fn untrusted(error: &PgError) -> Option<[&'static str; 2]> {
    #[cfg(feature = "tls")]
    return crate::store::access::tls::refusal(error.source()?.downcast_ref()?);
    #[cfg(not(feature = "tls"))]
    {
        let _ = error;
        None
    }
}

/// The driver's text and those of its causes, in one line. Its texts never hold the password.
fn reason(error: &PgError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_error_proves_that_nothing_was_done() {
        for code in ["LH002", "55P03", "40001", "57014", "25006", "42501"] {
            assert!(proves_an_abort(code), "{code}");
        }
        for code in ["XX000", "58030", "08006", "40003", "01000"] {
            assert!(!proves_an_abort(code), "{code}");
        }
    }
}
