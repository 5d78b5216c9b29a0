//! Exit codes, and how an error becomes one.

use std::error::Error as _;
use std::fmt;
use std::process::ExitCode;

use leasehold::{Error, ErrorKind};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

/// The exit codes, after `sysexits.h` where it has one.
pub(crate) mod code {
    use super::Signal;

    /// Everything went well.
    pub(crate) const DONE: u8 = 0;
    /// The answer is no: the lock is free, a clause is broken, an update was lost.
    pub(crate) const NO: u8 = 1;
    /// Bad usage.
    pub(crate) const USAGE: u8 = 64;
    /// The store holds data that is not ours.
    pub(crate) const DATA: u8 = 65;
    /// The store cannot be reached.
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// An error of the tool itself.
    pub(crate) const SOFTWARE: u8 = 70;
    /// The system refused: no process, no terminal, no file, no room for the answer.
    pub(crate) const SYSTEM: u8 = 71;
    /// The lock was not acquired in time.
    pub(crate) const NOT_ACQUIRED: u8 = 75;
    /// The lease was lost, and the command was ended.
    pub(crate) const LOST: u8 = 76;
    /// The store refuses this caller.
    pub(crate) const DENIED: u8 = 77;
    /// The command exists but cannot be executed, as in shells.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// The command was not found, as in shells.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// A signal ended the command: 128 plus the signal's number, as in shells.
    pub(crate) const SIGNAL: u8 = 128;

    /// The exit code that shells give for a signal.
    pub(crate) fn of(signal: Signal) -> u8 {
        of_number(signal as i32)
    }

    /// As [`of`], for a signal that may have no name.
    pub(crate) fn of_number(signal: i32) -> u8 {
        // Signals end at 64.
        SIGNAL | u8::try_from(signal).unwrap_or(0)
    }
}

/// How the tool ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Code(u8),
    /// By this signal, as the command did: a shell that sees it ends its loop too, as it does for
    /// `flock` and `env`.
    Signal(Signal),
    /// By this signal of the terminal. The command was in its foreground instead of our own group,
    /// so a shell script around us has not received the signal yet: it gets it now, as it does
    /// where a command stays in its group.
    Interrupt(Signal),
}

impl From<u8> for Status {
    fn from(code: u8) -> Self {
        Self::Code(code)
    }
}

impl Status {
    /// The exit code, as shells give it for a signal.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) | Self::Interrupt(signal) => code::of(signal),
        }
    }

    /// Ends the process by the signal. Returns for an exit code, and if the signal does not end us.
    pub(crate) fn end(self) -> ExitCode {
        if let Self::Interrupt(signal) = self {
            let _ = killpg(getpgrp(), signal);
        }
        // The first process of a container ends by no signal that it sends to itself.
        let ends_by_signals = std::process::id() != 1;
        if let Self::Signal(signal) | Self::Interrupt(signal) = self
            && ends_by_signals
        {
            // The command has written its own core file, if it was to write one.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
        }
        ExitCode::from(self.code())
    }
}

/// Why the tool failed.
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
            ErrorKind::Contended | ErrorKind::NotReady => code::NOT_ACQUIRED,
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

/// How many causes are printed.
const MOST_CAUSES: usize = 8;

/// An error with its causes.
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
