//! The answers of the fence's scripts.

use std::fmt;

use ::redis::Value;

use crate::model::commit::HeldKey;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::redis::store::fault;

/// The answer to a batch (feature `redis`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "a batch that was fenced was not applied"]
pub enum Written {
    /// The whole batch is applied, once, however often it was sent.
    Applied,
    /// The fence has seen a larger token. Nothing was applied, and nothing will be.
    Fenced {
        /// The larger token.
        seen: FencingToken,
    },
    /// A key that the batch [creates](super::RedisBatch::create) exists: what it does once was done
    /// before, by another batch. Nothing was applied.
    AlreadyApplied,
}

/// The locks of a batch, for a message.
struct Shown<'a>(&'a [HeldKey]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, HeldKey { key, token }) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}key={key} token={token}")?;
        }
        Ok(())
    }
}

/// Reads the answer of either script.
pub(super) fn read(locks: &[HeldKey], answer: &Value) -> Result<Written, Error> {
    let locks = Shown(locks);
    let parts: &[Value] = match answer {
        Value::Array(parts) => parts,
        _ => &[],
    };
    let word = match parts.first() {
        Some(Value::BulkString(word)) => word.as_slice(),
        _ => &[],
    };
    let number = parts.get(1).and_then(|part| match part {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    });
    match (word, number) {
        (b"applied" | b"again" | b"raised", _) => Ok(Written::Applied),
        (b"fenced", Some(seen)) => Ok(Written::Fenced {
            seen: FencingToken::new(seen)?,
        }),
        (b"exists", _) => Ok(Written::AlreadyApplied),
        (b"implausible", _) => Err(Error::corrupt(format!(
            "the token is implausibly far ahead of the server's clock: {locks}; check where it came from"
        ))),
        (b"foreign", _) => Err(Error::corrupt(format!(
            "the fence key holds a value that is not ours: {locks}; it was left as it is, check it"
        ))),
        (b"void", _) => Err(Error::unavailable(format!(
            "the commit was resolved before it arrived, and is void: {locks}; run the work again"
        ))),
        (b"untimely", _) => Err(Error::invalid(format!(
            "the run began more than a day after the server's time, or before one whose name is deleted: {locks}; compare the clocks of this machine and the server, and keep runs short"
        ))),
        (b"reused", _) => Err(Error::invalid(format!(
            "another batch was applied under this name: {locks}; give each batch of a run its own part"
        ))),
        (b"invalid", Some(at)) => Err(Error::invalid(format!(
            "the data do not allow command number {at} of the batch: {locks} reason={}; nothing was applied",
            text(parts.get(2))
        ))),
        (b"broken", Some(at)) => Err(Error::in_doubt(format!(
            "command number {at} of the batch failed, and those before it are applied: {locks} reason={}; fix the data by hand",
            text(parts.get(2))
        ))),
        _ => Err(fault::unexpected_reply("apply a batch")),
    }
}

pub(super) fn text(part: Option<&Value>) -> String {
    match part {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes)
            .chars()
            .filter(|c| !c.is_control())
            .take(80)
            .collect(),
        _ => String::new(),
    }
}
