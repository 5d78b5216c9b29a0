//! What our scripts answer, as data.

use std::time::Duration;

use ::redis::Value;

use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{
    Acquired, Claim, Grant, GrantProof, LockInfo, LockMode, MAX_SKEW, Raised, Renewed, Revoked,
};

use super::fault::strange;

/// The answer of the acquire script.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The server's time, in microseconds.
    pub(super) micros: u64,
}

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Acquired(Acquired),
    /// Nothing is granted for so long.
    Quarantined(Duration),
}

impl Outcome {
    pub(super) fn is_grant(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Granted(_)))
    }
}

/// Whether the acquire script says this word.
pub(super) fn is(answer: &Value, word: &str) -> bool {
    text(answer) == Some(word)
}

/// Reads the answer of the acquire script.
pub(super) fn acquired(claim: &Claim, answer: &Value) -> Result<Answer, Error> {
    let mut parts = text(answer).unwrap_or_default().split(' ');
    let word = parts.next().unwrap_or_default();
    let numbers: Result<Vec<i64>, _> = parts.map(str::parse).collect();
    let numbers = numbers.map_err(|_| strange("acquire"))?;
    let key = &claim.key;
    let told = |outcome, micros: i64| {
        let micros = u64::try_from(micros).map_err(|_| strange("acquire"))?;
        Ok(Answer { outcome, micros })
    };
    match (word, numbers.as_slice()) {
        ("granted", [token, left, micros]) => {
            let token = FencingToken::new(u64::try_from(*token).map_err(|_| strange("acquire"))?)?;
            let proof = GrantProof::of(millis(*left).ok_or_else(|| strange("acquire"))?);
            let grant = Grant::new(claim.clone(), token, proof);
            told(Outcome::Acquired(Acquired::Granted(grant)), *micros)
        }
        ("busy", [left, micros]) => {
            let remaining = millis(*left);
            told(Outcome::Acquired(Acquired::Busy { remaining }), *micros)
        }
        ("quarantined", [left, micros]) => told(
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
        _ => Err(strange("acquire")),
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
            _ => Err(strange("raise")),
        },
        Some(("foreign", _)) => Err(foreign(&claim.key)),
        _ => Err(strange("raise")),
    }
}

fn foreign(key: &Key) -> Error {
    Error::corrupt(format!(
        "a key beside the lock holds what we did not write: key={key}; it was left as it is, look at it"
    ))
}

fn wrong_type(key: &Key) -> Error {
    Error::corrupt(format!(
        "the key is no lock: key={key}; it was left as it is, look at it"
    ))
}

/// A word and the whole numbers after it; texts after it are left out.
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
        _ => return grants.map(|_| Renewed::Unknown(strange("renew"))).collect(),
    };
    let read = |(grant, answer): (&Grant, u8)| match answer {
        b'1' => Renewed::Extended(GrantProof::of(whole_millis(grant.claim.ttl))),
        // What is no lock any more is not ours any more.
        b'0' | b'!' => Renewed::Gone,
        b'?' => Renewed::Unknown(Error::unavailable(
            "the keys of a lock are on their way to another node of the cluster; nothing was extended",
        )),
        _ => Renewed::Unknown(strange("renew")),
    };
    grants.zip(answers).map(read).collect()
}

/// What the server counts of a TTL.
pub(super) fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the answer of the revoke script.
pub(super) fn revoked(key: &Key, answer: &Value) -> Result<Revoked, Error> {
    match words(answer) {
        Some(("revoked", numbers)) => match numbers.as_slice() {
            [left] => {
                let free_in = millis(*left).ok_or_else(|| strange("revoke"))?;
                Ok(Revoked::Revoked { free_in })
            }
            _ => Err(strange("revoke")),
        },
        Some(("free", _)) => Ok(Revoked::NotHeld),
        Some(("endless", _)) => Err(Error::corrupt(format!(
            "the key never expires, so that there is no end of a lease to wait for: key={key}; it was left as it is: look at it, or revoke it now"
        ))),
        _ => Err(strange("revoke")),
    }
}

/// Reads one answer of the inspect script.
pub(super) fn inspected(key: &Key, answer: &Value) -> Result<Option<LockInfo>, Error> {
    let parts = match answer {
        Value::Nil | Value::Boolean(false) => return Ok(None),
        Value::Array(parts) => parts.as_slice(),
        _ => return Err(strange("inspect")),
    };
    let [word, rest @ ..] = parts else {
        return Err(strange("inspect"));
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
                    u64::try_from(*token).map_err(|_| strange("inspect"))?,
                )?),
                _ => None,
            },
            remaining: millis(*left),
            mode: text(mode).and_then(mode_of),
            holders: usize::try_from(*holders).map_err(|_| strange("inspect"))?,
            queue: usize::try_from(*queue).ok(),
            ..LockInfo::of(key.clone())
        })),
        (Some("wrongtype"), _) => Err(wrong_type(key)),
        (Some("foreign"), _) => Err(foreign(key)),
        _ => Err(strange("inspect")),
    }
}

/// `None` for a holder of whom we know nothing, and for nobody.
fn mode_of(word: &str) -> Option<LockMode> {
    [LockMode::Exclusive, LockMode::Read, LockMode::Write]
        .into_iter()
        .find(|mode| mode.to_string() == word)
}
