//! What the exit codes mean, and how an error becomes one.

use std::error::Error as _;
use std::fmt;

use leasehold::{Error, ErrorKind};

/// The exit codes, after `sysexits.h` where it has one.
pub(crate) mod code {
    use nix::sys::signal::Signal;

    /// Everything went well.
    pub(crate) const DONE: u8 = 0;
    /// Looked, and the answer is no: the lock is free, a clause is broken, an update was lost.
    pub(crate) const NO: u8 = 1;
    /// Bad usage.
    pub(crate) const USAGE: u8 = 64;
    /// What the store keeps is not what we wrote.
    pub(crate) const DATA: u8 = 65;
    /// The store cannot be reached.
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// An error of the tool itself.
    pub(crate) const SOFTWARE: u8 = 70;
    /// The system refused: no process, no terminal, no file.
    pub(crate) const SYSTEM: u8 = 71;
    /// The lock was not acquired in time.
    pub(crate) const NOT_ACQUIRED: u8 = 75;
    /// The lease was lost, and the command was ended.
    pub(crate) const LOST: u8 = 76;
    /// The store refuses this caller.
    pub(crate) const DENIED: u8 = 77;
    /// The command is there and cannot be executed, as shells say it.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// The command was not found, as shells say it.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// A signal ended it: 128 and the signal's number, as shells say it.
    pub(crate) const SIGNAL: u8 = 128;

    /// As shells say that a signal ended something.
    pub(crate) fn of(signal: Signal) -> u8 {
        // Signals end at 64.
        SIGNAL | u8::try_from(signal as i32).unwrap_or(0)
    }
}

/// Why the tool ends without having done what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            code: code::USAGE,
            message: message.into(),
        }
    }

    pub(crate) fn system(what: &str, why: &dyn fmt::Display) -> Self {
        Self {
            code: code::SYSTEM,
            message: format!("{what}: {why}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Contended => code::NOT_ACQUIRED,
            ErrorKind::Lost(_) => code::LOST,
            ErrorKind::InDoubt | ErrorKind::Unavailable => code::UNAVAILABLE,
            ErrorKind::Denied => code::DENIED,
            ErrorKind::Unsupported | ErrorKind::Invalid => code::USAGE,
            ErrorKind::Corrupt => code::DATA,
            _ => code::SOFTWARE,
        };
        Self {
            code,
            message: with_causes(&error),
        }
    }
}

/// How many causes are told: nobody reads more.
const MOST_CAUSES: usize = 8;

/// An error, and what it came of.
pub(crate) fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    for _ in 0..MOST_CAUSES {
        let Some(cause) = next else { break };
        text += &format!("; caused by: {cause}");
        next = cause.source();
    }
    text
}
