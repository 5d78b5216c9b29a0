//! The step between the tool and its command: the tool again, which ties itself to its parent and then becomes the command.
//!
//! The parent-death signal and the terminal are the child's own to set, between fork and exec, where only unsafe code can
//! run. So the child is a program of ours first. It is in its own process group when it begins.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::unistd::{Pid, getpid};

use super::terminal::Terminal;
use crate::exit::code;
use crate::parent::die_with;

/// The hidden subcommand: `__exec PARENT FOREGROUND COMMAND ARGUMENTS...`.
pub(crate) const EXEC: &str = "__exec";

/// The word for [`FOREGROUND`](EXEC).
pub(super) const FOREGROUND: &str = "foreground";
pub(super) const BACKGROUND: &str = "background";

/// Becomes the command. Returns only if that failed.
pub(crate) fn exec(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut word = || words.next().and_then(|word| word.into_string().ok());
    let parent = word().and_then(|word| word.parse().ok()).map(Pid::from_raw);
    let place = word();
    let (Some(parent), Some(place), Some(command)) = (parent, place, words.next()) else {
        eprintln!("leasehold: {EXEC} is for leasehold itself; use leasehold run");
        return ExitCode::from(code::USAGE);
    };
    if let Err(why) = die_with(parent) {
        eprintln!("leasehold: the command cannot be tied to its lock, and is not run: {why}");
        return ExitCode::from(code::SYSTEM);
    }
    if place == FOREGROUND {
        // Without the foreground the command still runs; it is stopped if it reads from the terminal.
        let _ = Terminal::open().map(|terminal| terminal.give(getpid()));
    }
    let why = Command::new(&command).args(words).exec();
    eprintln!("leasehold: {}: {why}", command.to_string_lossy());
    ExitCode::from(match why.kind() {
        std::io::ErrorKind::NotFound => code::NOT_FOUND,
        _ => code::NOT_EXECUTABLE,
    })
}
