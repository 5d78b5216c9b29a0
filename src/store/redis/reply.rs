//! The answers of our scripts, as data.

use std::time::Duration;

use ::redis::Value;

use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{
    Acquired, Claim, Grant, GrantProof, LockInfo, LockMode, MAX_SKEW, Raised, Renewed, Revoked,
};

use super::fault::unexpected_reply;

/// The answer of the acquire script.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The server's time, in microseconds.
    pub(super) micros: u64,
    /// Whether the script found the server's marker, or wrote it.
    pub(super) is_marker_seen: bool,
}

/// The result of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Acquired(Acquired),
    /// The server grants nothing for this long.
    Quarantined(Duration),
}

impl Outcome {
    pub(super) fn is_grant(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Granted(_)))
    }
}

/// Whether the acquire script answered this word.
pub(super) fn is(answer: &Value, word: &str) -> bool {
    text(answer) == Some(word)
}

/// Reads the answer of the acquire script.
pub(super) fn acquired(claim: &Claim, answer: &Value) -> Result<Answer, Error> {
    let mut parts = text(answer).unwrap_or_default().split(' ');
    let word = parts.next().unwrap_or_default();
    let numbers: Result<Vec<i64>, _> = parts.map(str::parse).collect();
    let numbers = numbers.map_err(|_| unexpected_reply("acquire"))?;
    let key = &claim.key;
    let with_time = |outcome, micros: i64| {
        let micros = u64::try_from(micros).map_err(|_| unexpected_reply("acquire"))?;
        Ok(Answer {
            outcome,
            micros,
            is_marker_seen: true,
        })
    };
    match (word, numbers.as_slice()) {
        ("granted", [token, left, micros]) => {
            let token =
                FencingToken::new(u64::try_from(*token).map_err(|_| unexpected_reply("acquire"))?)?;
            let proof = GrantProof::of(millis(*left).ok_or_else(|| unexpected_reply("acquire"))?);
            let grant = Grant::new(claim.clone(), token, proof);
            with_time(Outcome::Acquired(Acquired::Granted(grant)), *micros)
        }
        ("busy", [left, micros]) => {
            let remaining = millis(*left);
            with_time(Outcome::Acquired(Acquired::Busy { remaining }), *micros)
        }
        ("busy", [left, micros, 0]) => {
            let remaining = millis(*left);
            let answer = with_time(Outcome::Acquired(Acquired::Busy { remaining }), *micros)?;
            Ok(Answer {
                is_marker_seen: false,
                ..answer
            })
        }
        ("quarantined", [left, micros]) => with_time(
            Outcome::Quarantined(millis(*left).unwrap_or_default()),
            *micros,
        ),
        ("withdrawn", []) => Err(Error::invalid(format!(
            "this claim was withdrawn: key={key}; make a new claim"
        ))),
        ("ahead", [counter, now]) => Err(ahead(key, *counter, *now)),
        ("disagree", [theirs]) => Err(Error::invalid(format!(
            "the clients of this prefix agreed on another max_ttl: theirs={theirs}ms; use the same, or stop all of them and delete the key {{leasehold}}:marker under the prefix (in a cluster, every key that ends in :leasehold:marker)"
        ))),
        ("foreign", []) => Err(foreign(key)),
        _ => Err(unexpected_reply("acquire")),
    }
}

fn ahead(key: &Key, token: i64, now: i64) -> Error {
    Error::unavailable(format!(
        "a token is further ahead of the server's clock than {MAX_SKEW:?}: key={key} token={token} server={now}; look for a clock that was set back, or another writer of the counter"
    ))
}

/// Reads the answer of the raise script.
pub(super) fn raised(claim: &Claim, answer: &Value) -> Result<Raised, Error> {
    match words(answer) {
        Some(("raised", _)) => Ok(Raised::Raised),
        Some(("gone", _)) => Ok(Raised::Gone),
        Some(("ahead", numbers)) => match numbers.as_slice() {
            [token, now] => Err(ahead(&claim.key, *token, *now)),
            _ => Err(unexpected_reply("raise")),
        },
        Some(("foreign", _)) => Err(foreign(&claim.key)),
        _ => Err(unexpected_reply("raise")),
    }
}

fn foreign(key: &Key) -> Error {
    Error::corrupt(format!(
        "a key beside the lock holds a value that is not ours: key={key}; it was left as it is, check it"
    ))
}

fn wrong_type(key: &Key) -> Error {
    Error::corrupt(format!(
        "the key is no lock: key={key}; it was left as it is, check it"
    ))
}

/// A word and the whole numbers after it; texts after it are skipped.
fn words(answer: &Value) -> Option<(&str, Vec<i64>)> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let (word, rest) = parts.split_first()?;
    let numbers = rest.iter().filter_map(|part| match part {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    Some((text(word)?, numbers.collect()))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn millis(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// Reads the answer of the renew script: one for each grant.
pub(super) fn renewed<'a>(
    grants: impl ExactSizeIterator<Item = &'a Grant>,
    answer: &Value,
) -> Vec<Renewed> {
    let answers = match text(answer) {
        Some(answers) if answers.len() == grants.len() => answers.bytes(),
        _ => {
            return grants
                .map(|_| Renewed::Unknown(unexpected_reply("renew")))
                .collect();
        }
    };
    let read = |(grant, answer): (&Grant, u8)| match answer {
        b'1' => Renewed::Extended(GrantProof::of(whole_millis(grant.claim.ttl))),
        // A key that is no longer a lock is no longer ours.
        b'0' | b'!' => Renewed::Gone,
        b'?' => Renewed::Unknown(Error::unavailable(
            "the keys of a lock are moving to another node of the cluster; nothing was extended",
        )),
        _ => Renewed::Unknown(unexpected_reply("renew")),
    };
    grants.zip(answers).map(read).collect()
}

/// A TTL as the server counts it.
pub(super) fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the answer of the revoke script.
pub(super) fn revoked(key: &Key, answer: &Value) -> Result<Revoked, Error> {
    match words(answer) {
        Some(("revoked", numbers)) => match numbers.as_slice() {
            [left] => {
                let free_in = millis(*left).ok_or_else(|| unexpected_reply("revoke"))?;
                Ok(Revoked::Revoked { free_in })
            }
            _ => Err(unexpected_reply("revoke")),
        },
        Some(("free", _)) => Ok(Revoked::NotHeld),
        Some(("endless", _)) => Err(Error::corrupt(format!(
            "the key never expires, so no lease end can be awaited: key={key}; it was left as it is: check it, or revoke it now"
        ))),
        _ => Err(unexpected_reply("revoke")),
    }
}

/// Reads one answer of the inspect script.
pub(super) fn inspected(key: &Key, answer: &Value) -> Result<Option<LockInfo>, Error> {
    let parts = match answer {
        Value::Nil | Value::Boolean(false) => return Ok(None),
        Value::Array(parts) => parts.as_slice(),
        _ => return Err(unexpected_reply("inspect")),
    };
    let [word, rest @ ..] = parts else {
        return Err(unexpected_reply("inspect"));
    };
    match (text(word), rest) {
        (
            Some("held"),
            [
                Value::Int(left),
                mode,
                Value::Int(holders),
                Value::Int(queue),
                last @ ..,
            ],
        ) => Ok(Some(LockInfo {
            label: (last.get(1).and_then(text)).and_then(|label| Label::parse(label).ok()),
            token: match last.first() {
                Some(Value::Int(token)) => Some(FencingToken::new(
                    u64::try_from(*token).map_err(|_| unexpected_reply("inspect"))?,
                )?),
                _ => None,
            },
            remaining: millis(*left),
            mode: text(mode).and_then(mode_of),
            holders: usize::try_from(*holders).map_err(|_| unexpected_reply("inspect"))?,
            queue: usize::try_from(*queue).ok(),
            ..LockInfo::of(key.clone())
        })),
        (Some("wrongtype"), _) => Err(wrong_type(key)),
        (Some("foreign"), _) => Err(foreign(key)),
        _ => Err(unexpected_reply("inspect")),
    }
}

/// `None` for a holder that is not ours, and for nobody.
fn mode_of(word: &str) -> Option<LockMode> {
    [LockMode::Exclusive, LockMode::Read, LockMode::Write]
        .into_iter()
        .find(|mode| mode.to_string() == word)
}
