//! The step between the tool and its command: the tool again, which ties itself to its parent and
//! then becomes the command.
//!
//! The parent-death signal and the terminal are the child's own to set, between fork and exec,
//! where only unsafe code can run. So the child is a program of ours first. It is in its own
//! process group when it begins.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use nix::unistd::{Pid, getpid};

use super::terminal::Terminal;
use crate::exit::{Failure, code};
use crate::output::Output;
use crate::parent::die_with;

/// The hidden subcommand: `__exec PARENT FOREGROUND LANGUAGE COMMAND ARGUMENTS...`.
pub(crate) const EXEC: &str = "__exec";

/// The word for [`FOREGROUND`](EXEC).
pub(super) const FOREGROUND: &str = "foreground";
pub(super) const BACKGROUND: &str = "background";

/// The words for `LANGUAGE`: for whom it says why the command is not run.
const FOR_SCRIPTS: &str = "json";
const FOR_PEOPLE: &str = "text";

pub(super) fn language(output: Output) -> &'static str {
    if output.json { FOR_SCRIPTS } else { FOR_PEOPLE }
}

/// Becomes the command. Returns only if that failed.
pub(crate) fn exec(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut word = || words.next().and_then(|word| word.into_string().ok());
    let parent = word().and_then(|word| word.parse().ok()).map(Pid::from_raw);
    let (place, language) = (word(), word());
    let output = Output {
        json: language.as_deref() == Some(FOR_SCRIPTS),
    };
    let refused = |failure: Failure| {
        output.failure(&failure);
        ExitCode::from(failure.code)
    };
    let (Some(parent), Some(place), Some(command)) = (parent, place, words.next()) else {
        let message = format!("{EXEC} is for leasehold itself; use leasehold run");
        return refused(Failure::usage(message));
    };
    if let Err(why) = die_with(parent) {
        let message = "the command cannot be tied to its lock, and is not run";
        return refused(Failure::system(message, &why));
    }
    if place == FOREGROUND {
        // Without the foreground the command still runs; it is stopped if it reads from the
        // terminal.
        let _ = Terminal::open().map(|terminal| terminal.give(getpid()));
    }
    // The tool blocks signals that would stop it, and a command begins with none blocked.
    if let Err(why) = SigSet::empty().thread_set_mask() {
        return refused(Failure::system("the signal mask cannot be set", &why));
    }
    let why = Command::new(&command).args(words).exec();
    refused(Failure {
        code: match why.kind() {
            std::io::ErrorKind::NotFound => code::NOT_FOUND,
            _ => code::NOT_EXECUTABLE,
        },
        message: format!("{}: {why}", command.to_string_lossy()),
    })
}
