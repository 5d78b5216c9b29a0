//! [`Failure`]: why a request has no answer.

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind, Value, parse_redis_value};

use super::super::fault;
use crate::model::error::Error;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was not sent.
    NotSent(Error),
    /// It was answered, and the answer is an error of ours.
    Answered(Error),
    /// The server refused it.
    Refused(RedisError),
    /// It was sent, and no answer came.
    Unanswered(RedisError),
}

impl Failure {
    pub(in super::super) fn of(error: RedisError) -> Self {
        let error = without_script(error);
        match error.kind() {
            Redis::Server(_) | Redis::Extension | Redis::AuthenticationFailed => {
                Self::Refused(error)
            }
            _ => Self::Unanswered(error),
        }
    }

    pub(in super::super) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Refused(error) if is_unknown_script(error))
    }

    /// The error for our caller.
    pub(crate) fn into_error(self, doing: &str) -> Error {
        match self {
            Self::NotSent(error) | Self::Answered(error) => error,
            Self::Refused(error) => fault::refused(&error, doing),
            Self::Unanswered(error) => fault::unanswered(&error, doing),
        }
    }
}

/// Before the line of a script.
const PLACE: &str = "@user_script:";

/// How servers say, without a code, that the user of a script may not do what it does: version 6
/// and 7.0; later ones and Valkey.
const NO_RIGHT: [&str; 2] = [
    "The user executing the script can't",
    "ACL failure in script",
];

/// What was refused inside of a script, as if it had been sent by itself. A server of version 6
/// answers `ERR Error running script (call to f_<hash>): @user_script:1: READONLY
/// ...`, or `@user_script: 1: READONLY ...` where the script passes it on, and no server names a
/// missing right by its code there.
pub(super) fn without_script(error: RedisError) -> RedisError {
    let is_plain = error.kind() == Redis::Server(ServerErrorKind::ResponseError);
    let is_passed_on = error.code() == Some(PLACE);
    let Some(detail) = error.detail().filter(|_| is_plain || is_passed_on) else {
        return error;
    };
    let refusal = match detail.rsplit_once(PLACE) {
        Some((script, refusal)) if script.starts_with("Error running script") => Some(refusal),
        _ => is_passed_on.then_some(detail),
    };
    let inside = refusal.map_or(detail, |refusal| {
        let text = refusal
            .split_once(": ")
            .map_or(refusal, |(_line, text)| text);
        text.strip_prefix('-').unwrap_or(text)
    });
    let refusal = if NO_RIGHT.iter().any(|begin| inside.starts_with(begin)) {
        format!("-NOPERM {inside}\r\n")
    } else if inside != detail && begins_with_a_code(inside) {
        format!("-{inside}\r\n")
    } else {
        return error;
    };
    match parse_redis_value(refusal.as_bytes()).map(Value::extract_error) {
        Ok(Err(refusal)) => refusal,
        _ => error,
    }
}

/// An error of the script itself begins with its place.
fn begins_with_a_code(text: &str) -> bool {
    let code = text.split(' ').next().unwrap_or_default();
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Whether the server does not know the hash of a script. Then it has executed nothing of it.
pub(in super::super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == Redis::Server(ServerErrorKind::NoScript)
}

/// How many replicas confirmed, by the answer to
/// [`wait_for_replicas`](super::super::RedisOptions::wait_for_replicas).
pub(in super::super) fn confirmed(answer: Option<Result<Value, RedisError>>) -> u32 {
    match answer {
        Some(Ok(Value::Int(count))) => u32::try_from(count).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(answer: &str) -> RedisError {
        let answer = parse_redis_value(format!("-{answer}\r\n").as_bytes());
        without_script(answer.unwrap().extract_error().unwrap_err())
    }

    /// What servers answer, word for word.
    #[test]
    fn a_refusal_inside_of_a_script_is_known_by_its_own_code_on_every_version() {
        let call = "ERR Error running script (call to f_0a9f75e991483d02789696e4c90d26c10395863e): @user_script:1: ";
        for (answer, code) in [
            ("WRONGTYPE Operation against a key".to_owned(), "WRONGTYPE"),
            (format!("{call}WRONGTYPE Operation against a key"), "WRONGTYPE"),
            (format!("{call}@user_script: 1: -READONLY You can't write"), "READONLY"),
            (format!("{call}@user_script: 1: -OOM command not allowed"), "OOM"),
            (format!("{call}ERR hash value is not an integer"), "ERR"),
            (format!("{call}@user_script: 1: The user executing the script can't run this"), "NOPERM"),
            ("ERR The user executing the script can't run this command or subcommand script: 104a, on @user_script:1.".to_owned(), "NOPERM"),
            ("ERR ACL failure in script: No permissions to access a key script: on @user_script:1.".to_owned(), "NOPERM"),
            ("@user_script: 14: The user executing the script can't run this command or subcommand".to_owned(), "NOPERM"),
            ("@user_script: 14: -READONLY You can't write".to_owned(), "READONLY"),
            (format!("{call}user_script:1: attempt to index a nil value"), "ERR"),
            ("ERR unknown command 'EVAL'".to_owned(), "ERR"),
        ] {
            assert_eq!(refused(&answer).code(), Some(code), "{answer}");
        }
        let no_integer = refused(&format!("{call}ERR hash value is not an integer"));
        assert_eq!(no_integer.detail(), Some("hash value is not an integer"));
    }
}
