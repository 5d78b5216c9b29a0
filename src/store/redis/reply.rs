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

use super::cluster::Slot;
use super::counters::PROTOCOL;
use super::fault::unexpected_reply;
use super::names::Names;

/// The answer to an attempt.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The server's time, in microseconds; 0 if nobody asked for it.
    pub(super) micros: u64,
}

/// What a script that grants answered. Times are those of the server, in microseconds; 0 if nobody asked for them.
#[derive(Debug)]
pub(super) enum Attempted {
    Granted {
        token: FencingToken,
        left: Duration,
        micros: u64,
    },
    Busy {
        /// `None`: nobody knows.
        left: Option<Duration>,
        micros: u64,
        /// The newest token, from the script of the queue.
        last: Option<u64>,
    },
    /// There is a queue, which has its own script.
    Queued,
    /// The server does not have the counter.
    Slow,
}

/// The answer of the script that arms the counter of tokens.
#[derive(Debug)]
pub(super) enum Armed {
    Counter {
        name: String,
        /// The server's time, in microseconds.
        micros: u64,
    },
    /// The server grants nothing for now.
    Quarantined(Answer),
    /// The server is not what the client read when it connected.
    Outdated,
}

/// The result of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Acquired(Acquired),
    /// The server grants nothing for this long.
    Quarantined(Duration),
}

/// Whether the raise script answered that the counter must be armed.
pub(super) fn is_slow(answer: &Value) -> bool {
    matches!(words(answer), Some(("slow", _)))
}

/// A word and up to three numbers after it.
fn parts(answer: &Value) -> Option<(&str, [Option<i64>; 3])> {
    let mut parts = text(answer)?.split(' ');
    let word = parts.next()?;
    let mut numbers = [None; 3];
    for (at, part) in parts.enumerate() {
        *numbers.get_mut(at)? = Some(part.parse().ok()?);
    }
    Some((word, numbers))
}

/// Reads the answer of a script that grants.
pub(super) fn attempted(answer: &Value) -> Result<Attempted, Error> {
    let unexpected = || unexpected_reply("acquire");
    let whole = |number| u64::try_from(number).map_err(|_| unexpected());
    Ok(match parts(answer).ok_or_else(unexpected)? {
        ("granted", [Some(token), Some(left), Some(micros)]) => Attempted::Granted {
            token: FencingToken::new(whole(token)?)?,
            left: millis(left).ok_or_else(unexpected)?,
            micros: whole(micros)?,
        },
        ("busy", [Some(left), Some(micros), last]) => Attempted::Busy {
            left: millis(left),
            micros: whole(micros)?,
            last: last.map(whole).transpose()?,
        },
        ("queued", [None, ..]) => Attempted::Queued,
        ("slow", [None, ..]) => Attempted::Slow,
        _ => return Err(unexpected()),
    })
}

impl Attempted {
    /// What the answer is for a claim that asks no further.
    pub(super) fn answer(self, claim: &Claim) -> Result<Answer, Error> {
        let (acquired, micros) = match self {
            Self::Granted {
                token,
                left,
                micros,
            } => {
                let grant = Grant::new(claim.clone(), token, GrantProof::of(left));
                (Acquired::Granted(grant), micros)
            }
            Self::Busy { left, micros, .. } => (Acquired::Busy { remaining: left }, micros),
            Self::Queued | Self::Slow => return Err(unexpected_reply("acquire")),
        };
        let outcome = Outcome::Acquired(acquired);
        Ok(Answer { outcome, micros })
    }
}

/// Reads the answer of the script that arms the counter.
pub(super) fn armed(names: &Names, slot: Option<Slot>, answer: &Value) -> Result<Armed, Error> {
    let (marker, tokens) = (names.marker(slot), names.tokens(slot));
    if let Some(rest) = text(answer).and_then(|answer| answer.strip_prefix("armed ")) {
        let (name, micros) = rest
            .split_once(' ')
            .ok_or_else(|| unexpected_reply("acquire"))?;
        return Ok(Armed::Counter {
            name: name.to_owned(),
            micros: micros.parse().map_err(|_| unexpected_reply("acquire"))?,
        });
    }
    let (word, numbers) = parts(answer).ok_or_else(|| unexpected_reply("acquire"))?;
    match (word, numbers) {
        ("outdated", [None, ..]) => Ok(Armed::Outdated),
        ("quarantined", [Some(left), Some(micros), None]) => Ok(Armed::Quarantined(Answer {
            outcome: Outcome::Quarantined(millis(left).unwrap_or_default()),
            micros: u64::try_from(micros).map_err(|_| unexpected_reply("acquire"))?,
        })),
        ("disagree", [Some(theirs), None, _]) => Err(Error::invalid(format!(
            "the clients of this prefix agreed on another max_ttl: theirs={theirs}ms; use the same, or stop all of them and delete the key {marker} (in a cluster, every key that ends in :leasehold:marker)"
        ))),
        ("version", [Some(theirs), None, _]) => Err(Error::unsupported(format!(
            "the clients of this prefix use another version of the protocol: theirs={theirs} ours={PROTOCOL}; run one version: stop the others, let max_ttl pass, then delete the keys {marker} and {tokens} (in a cluster, every key that ends in :leasehold:marker or :leasehold:tokens)"
        ))),
        ("foreign", [None, ..]) => Err(Error::corrupt(format!(
            "a key of the prefix holds a value that is not ours: it is {marker} or {tokens}; both were left as they are, check them"
        ))),
        _ => Err(unexpected_reply("acquire")),
    }
}

fn ahead(key: &Key, token: i64, now: i64) -> Error {
    Error::unavailable(format!(
        "a token is further ahead of the server's clock and of its counter than {MAX_SKEW:?}: key={key} token={token} server={now}; compare the members' clocks"
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
        b'1' => Renewed::Extended(GrantProof::in_millis(grant.claim.ttl)),
        // A key that is no longer a lock is no longer ours.
        b'0' | b'!' => Renewed::Gone,
        b'?' => Renewed::Unknown(Error::unavailable(
            "the keys of a lock are moving to another node of the cluster; nothing was extended",
        )),
        _ => Renewed::Unknown(unexpected_reply("renew")),
    };
    grants.zip(answers).map(read).collect()
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
            held_for: match last.get(2) {
                Some(Value::Int(age)) => Some(millis(*age).unwrap_or_default()),
                _ => None,
            },
            held_for_is_about: last.len() > 2,
            mode: text(mode).and_then(mode_of),
            holders: usize::try_from(*holders).map_err(|_| unexpected_reply("inspect"))?,
            is_resting: text(mode) == Some("resting"),
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
