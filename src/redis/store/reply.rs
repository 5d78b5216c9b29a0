//! The answers of our scripts, as data.

use std::time::Duration;

use ::redis::Value;

use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{
    Claim, Grant, GrantProof, LockInfo, LockMode, MAX_SKEW, Raised, Renewed, Revoked, Waiter,
};

use super::fault::unexpected_reply;

/// The mode of a reader with a share.
const SHARE: &str = "s";

/// The answer to an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attempted {
    Granted {
        token: FencingToken,
        /// The server's time, in microseconds; 0 if this was no vote.
        micros: u64,
    },
    Busy {
        /// `None`: nobody knows.
        left: Option<Duration>,
        /// The server's time, in microseconds.
        micros: u64,
        /// The newest token.
        last: u64,
    },
    /// The server has to be judged.
    Judge,
    /// The claim was withdrawn.
    Gone,
}

/// Reads the answer of the script that acquires.
pub(super) fn attempted(answer: &Value) -> Result<Attempted, Error> {
    let unexpected = || unexpected_reply("acquire");
    let mut words = text(answer).ok_or_else(unexpected)?.split(' ');
    let word = words.next().unwrap_or_default();
    let numbers: Result<Vec<i64>, _> = words.map(str::parse).collect();
    let numbers = numbers.map_err(|_| unexpected())?;
    let whole = |number: i64| u64::try_from(number).map_err(|_| unexpected());
    Ok(match (word, numbers.as_slice()) {
        ("granted", [token, micros @ ..]) if micros.len() < 2 => Attempted::Granted {
            token: FencingToken::new(whole(*token)?)?,
            micros: micros.first().map_or(Ok(0), |micros| whole(*micros))?,
        },
        ("busy", [left, micros, last]) => Attempted::Busy {
            left: millis(*left),
            micros: whole(*micros)?,
            last: whole(*last)?,
        },
        ("judge", []) => Attempted::Judge,
        ("gone", []) => Attempted::Gone,
        _ => return Err(unexpected()),
    })
}

fn ahead(key: &Key, token: u64, now: &str) -> Error {
    Error::unavailable(format!(
        "a token is further ahead of the server's clock and of its counter than {MAX_SKEW:?}: key={key} token={token} server={now}; compare the members' clocks"
    ))
}

/// Reads the answer of the raise script.
pub(super) fn raised(claim: &Claim, token: FencingToken, answer: &Value) -> Result<Raised, Error> {
    let answer = text(answer).ok_or_else(|| unexpected_reply("raise"))?;
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("raised", "") => Ok(Raised::Raised),
        ("gone", "") => Ok(Raised::Gone),
        ("ahead", now) => Err(ahead(&claim.key, token.number(), now)),
        _ => Err(unexpected_reply("raise")),
    }
}

fn not_ours(key: &Key) -> Error {
    Error::corrupt(format!(
        "the key, or one beside it, holds a value that is no lock of ours: key={key}; it was left as it is, check it"
    ))
}

pub(super) fn text(value: &Value) -> Option<&str> {
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
        b'x' => Renewed::Unknown(Error::unavailable(
            "redis refused to read a lock, so nothing was extended: check the rights of its user (ACL LOG)",
        )),
        b'?' => Renewed::Unknown(Error::unavailable(
            "the keys of a lock are moving to another node of the cluster; nothing was extended",
        )),
        _ => Renewed::Unknown(unexpected_reply("renew")),
    };
    grants.zip(answers).map(read).collect()
}

/// Reads the answer of the revoke script.
pub(super) fn revoked(key: &Key, answer: &Value) -> Result<Revoked, Error> {
    let answer = text(answer).ok_or_else(|| unexpected_reply("revoke"))?;
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("revoked", left) => {
            let left = left.parse().ok().and_then(millis);
            let free_in = left.ok_or_else(|| unexpected_reply("revoke"))?;
            Ok(Revoked::Revoked { free_in })
        }
        ("free", "") => Ok(Revoked::NotHeld),
        ("endless", "") => Err(Error::corrupt(format!(
            "the key never expires, so no lease end can be awaited: key={key}; it was left as it is: check it, or revoke it now"
        ))),
        _ => Err(unexpected_reply("revoke")),
    }
}

/// Reads one answer of the inspect script.
pub(super) fn inspected(key: &Key, answer: &Value) -> Result<Option<LockInfo>, Error> {
    let unexpected = || unexpected_reply("inspect");
    let parts = match answer {
        Value::Nil | Value::Boolean(false) => return Ok(None),
        Value::Array(parts) => parts.as_slice(),
        _ if text(answer) == Some("!") => return Err(not_ours(key)),
        _ => return Err(unexpected()),
    };
    let [
        about,
        Value::Int(left),
        Value::Int(holders),
        Value::Int(queue),
        Value::Int(now),
        named @ ..,
    ] = parts
    else {
        return Err(unexpected());
    };
    let about = text(about).ok_or_else(unexpected)?;
    let (labels, waiters) = named_all(named).ok_or_else(unexpected)?;
    let mut info = LockInfo {
        remaining: millis(*left),
        holders: usize::try_from(*holders).map_err(|_| unexpected())?,
        is_resting: about == "leasehold:rest",
        queue: usize::try_from(*queue).ok(),
        labels,
        waiters,
        ..LockInfo::of(key.clone())
    };
    // Of the value of another client nothing is known.
    let mut words = about.splitn(4, ' ');
    if let (Some(token), Some(mode), Some(since), Some(label)) =
        (words.next(), words.next(), words.next(), words.next())
    {
        let token: u64 = token.parse().map_err(|_| unexpected())?;
        let since: i64 = since.parse().map_err(|_| unexpected())?;
        info.token = Some(FencingToken::new(token)?);
        info.mode = mode_of(mode);
        info.held_for = millis(now.saturating_sub(since).max(0));
        info.held_for_is_estimate = true;
        info.label = label_of(mode, label);
    }
    Ok(Some(info))
}

/// The labels of all holders (`<token> <mode> <since> <label>`), and those who wait
/// (`<mode> <label>`). A text that is not of ours has none.
fn named_all(named: &[Value]) -> Option<(Vec<Label>, Vec<Waiter>)> {
    let (holders, waiters) = match named {
        [] => return Some((Vec::new(), Vec::new())),
        [Value::Array(holders), Value::Array(waiters)] => (holders, waiters),
        _ => return None,
    };
    let label = |value: &Value| {
        let mut words = text(value)?.splitn(4, ' ').skip(1);
        let (mode, _since, label) = (words.next()?, words.next()?, words.next()?);
        label_of(mode, label)
    };
    let waiter = |value: &Value| {
        let (mode, label) = text(value)?.split_once(' ')?;
        Some(Waiter::new(label_of(mode, label), mode_of(mode)))
    };
    Some((
        holders.iter().filter_map(label).collect(),
        waiters.iter().filter_map(waiter).collect(),
    ))
}

/// The label of a claim, which its share may be before.
fn label_of(mode: &str, label: &str) -> Option<Label> {
    let label = match mode {
        SHARE => label.split_once(' ')?.1,
        _ => label,
    };
    Label::from_record(label).ok()
}

fn mode_of(word: &str) -> Option<LockMode> {
    match word {
        "x" => Some(LockMode::Exclusive),
        "w" => Some(LockMode::Write),
        "r" | SHARE => Some(LockMode::Read),
        _ => None,
    }
}
