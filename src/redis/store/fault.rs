//! The meaning of the Redis client's errors: what changed, and what to do.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind as Server};

use crate::model::error::{Error, ErrorKind};
use crate::store::url::is_unknown_host;

/// The commands that a user of locks needs, as an access list says it. The guide names the same
/// ones.
macro_rules! rights {
    () => {
        "+eval +evalsha +script|exists +script|load +info +time +get +set +del +exists +incr +pttl +pexpire +pexpireat +hget +hset \
         +hdel +hlen +zadd +zrem +zscore +zcard +zcount +zrange +zrangebyscore +publish +subscribe +unsubscribe +ping +scan"
    };
}

/// The kind for a server's refusal. `None`: a refusal that does not say whether something was done
/// before it.
fn kind_of_refusal(error: &RedisError) -> Option<ErrorKind> {
    match error.kind() {
        Redis::AuthenticationFailed | Redis::Server(Server::NoPerm) => Some(ErrorKind::Denied),
        Redis::RESP3NotSupported => Some(ErrorKind::Unsupported),
        Redis::Server(
            Server::BusyLoading
            | Server::ReadOnly
            | Server::MasterDown
            | Server::ClusterDown
            | Server::TryAgain
            | Server::NoScript,
        ) => Some(ErrorKind::Unavailable),
        Redis::Server(Server::CrossSlot | Server::Moved | Server::Ask) => {
            Some(ErrorKind::Unsupported)
        }
        _ => match error.code()? {
            "WRONGPASS" | "NOAUTH" | "DENIED" => Some(ErrorKind::Denied),
            "WRONGTYPE" => Some(ErrorKind::Corrupt),
            // A counter of tokens that is not ours.
            "ERR" if is_no_integer(error) => Some(ErrorKind::Corrupt),
            // Raised by the first write of a script, before it is done.
            "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" => Some(ErrorKind::Unavailable),
            _ => None,
        },
    }
}

fn is_no_integer(error: &RedisError) -> bool {
    (error.detail()).is_some_and(|detail| detail.contains("not an integer"))
}

fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Denied => {
            concat!(
                "check user, password and access list: ~PREFIX:* &PREFIX:* ",
                rights!()
            )
        }
        ErrorKind::Unsupported => {
            "use a server of version 6 or later; for nodes of a cluster a URL that begins with redis+cluster://"
        }
        ErrorKind::Corrupt => {
            "a key under our prefix is no lock of ours; it was left as it is, check it"
        }
        ErrorKind::InDoubt => "it may have been done",
        _ => "try later",
    }
}

/// The part of the client's error that may be shown: never its detail, which may quote arguments
/// (passwords, owner tokens).
fn shown(error: &RedisError) -> String {
    match (error.code(), error.kind()) {
        (Some(code), _) => code.to_owned(),
        (None, kind) => format!("{kind:?}"),
    }
}

/// The network error inside. It quotes nothing that we sent.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let cause = error
        .source()?
        .downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
    cause.downcast_ref()
}

/// Why the TLS handshake failed, and what to do; `None` if it did not.
fn untrusted(inner: Option<&io::Error>) -> Option<[&'static str; 2]> {
    #[cfg(feature = "tls")]
    return crate::store::access::tls::refusal(inner?);
    #[cfg(not(feature = "tls"))]
    {
        let _ = inner;
        None
    }
}

/// Why a server is not reached, in the words of an operator, and what to do.
fn unreached(error: &RedisError, inner: Option<&io::Error>) -> [&'static str; 2] {
    const NOT_REDIS: [&str; 2] = [
        "this does not answer like Redis",
        "check the port, and whether the server wants TLS (rediss://)",
    ];
    if error.kind() == Redis::Parse {
        return NOT_REDIS;
    }
    let Some(inner) = inner else {
        return [
            "no connection to redis",
            "check host and port, and that the server runs; then try again",
        ];
    };
    if is_unknown_host(inner) {
        return [
            "host name not found",
            "check the host in the URL, and the name service",
        ];
    }
    match inner.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => NOT_REDIS,
        io::ErrorKind::InvalidData => [
            "the TLS handshake with redis failed",
            "check the server's certificate, and the host in the URL",
        ],
        _ => [
            "no connection to redis",
            "check host and port, and that the server runs; then try again",
        ],
    }
}

/// The server could not be reached, or refused the handshake: nothing was sent.
pub(super) fn not_connected(error: &RedisError, address: &str) -> Error {
    if let Some(kind) = kind_of_refusal(error) {
        let (why, advice) = (shown(error), advice(kind));
        return Error::new(
            kind,
            format!("no connection to redis: address={address} reason={why}; {advice}"),
        );
    }
    let inner = io_error(error);
    let source = inner.map(|inner| io::Error::new(inner.kind(), inner.to_string()));
    if let (Some([why, advice]), Some(source)) = (untrusted(inner), source) {
        return Error::unavailable(format!(
            "the TLS handshake with redis failed: address={address} reason={why:?}; {advice}"
        ))
        .because(source);
    }
    let [what, advice] = unreached(error, inner);
    let reason = match inner {
        Some(inner) if is_unknown_host(inner) => String::new(),
        Some(inner) => format!(" reason={:?}", inner.kind()),
        None => format!(" reason={}", shown(error)),
    };
    let not_connected = Error::unavailable(format!("{what}: address={address}{reason}; {advice}"));
    match inner {
        Some(inner) => not_connected.because(io::Error::new(inner.kind(), inner.to_string())),
        None => not_connected,
    }
}

/// The server refused a request.
pub(super) fn refused(error: &RedisError, doing: &str) -> Error {
    let kind = kind_of_refusal(error).unwrap_or(ErrorKind::InDoubt);
    let why = shown(error);
    Error::new(
        kind,
        format!("redis refused to {doing}: reason={why}; {}", advice(kind)),
    )
}

/// No answer came.
pub(super) fn unanswered(error: &RedisError, doing: &str) -> Error {
    let why = if error.is_timeout() {
        "timeout"
    } else {
        "connection lost"
    };
    Error::in_doubt(format!(
        "redis did not answer: asked={doing} reason={why}; it may have been done"
    ))
}

/// An answer that our scripts never give.
pub(crate) fn unexpected_reply(doing: &str) -> Error {
    Error::in_doubt(format!(
        "redis gave an answer that our scripts never give: asked={doing}; look for a proxy that changes answers"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_connect_names_the_cause_and_what_to_check() {
        let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(
            not_connected(&refused, "db:6379").to_string(),
            "unavailable: no connection to redis: address=db:6379 reason=ConnectionRefused; check host and port, and that the server runs; then try again"
        );
        let denied = RedisError::from((Redis::AuthenticationFailed, "no", "sesame".to_owned()));
        let error = not_connected(&denied, "db:6379");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
}
