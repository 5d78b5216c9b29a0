//! The command: started in a process group of its own, signalled, and waited for.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, getpid};
use rustix::process::{WaitOptions, wait};

use super::descendants;
use super::exec::{BACKGROUND, EXEC, FOREGROUND, language};
use super::held::HoldOfRun;
use super::peers::has_peers;
use super::terminal::Terminal;
use crate::exit::{Failure, Status, code};
use crate::itself;
use crate::lease_file::VARIABLE;
use crate::output::Output;

#[derive(Debug)]
pub(super) struct Child {
    /// The command, and its process group.
    id: Pid,
    terminal: Option<Terminal>,
    /// The number of a signal.
    stopped_by: Option<i32>,
    end: Option<End>,
    /// No child of ours is left.
    is_last: bool,
}

/// The command runs as another user (`sudo`, setuid), and we may not signal it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotAllowed;

/// Whether whoever sends this signal wants the command to end.
pub(super) fn asks_to_end(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM
    )
}

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Exited(i32),
    /// By a signal of this number. Those above 31, the real-time signals, have no name.
    Signalled(i32),
}

impl Child {
    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Starts the command. The calling thread must live as long as the command: on Linux the
    /// parent-death signal is sent when the parent thread ends.
    pub(super) fn spawn(
        command: &[OsString],
        held: &HoldOfRun<'_>,
        lease_file: Option<&Path>,
        output: Output,
    ) -> Result<Self, Failure> {
        descendants::adopt();
        let failed = |why| Failure::system("the command could not be started", &why);
        let mut tool = itself::command().map_err(failed)?;
        // Others of our own pipeline read from the terminal too.
        let terminal = Terminal::of_ours().filter(|_| !has_peers());
        let place = if terminal.is_some() {
            FOREGROUND
        } else {
            BACKGROUND
        };
        // Not waited for through this handle, which does not report that a child was stopped.
        match lease_file {
            Some(path) => tool.env(VARIABLE, path),
            // An outer command's own.
            None => tool.env_remove(VARIABLE),
        };
        let child = tool
            .arg(EXEC)
            .arg(getpid().to_string())
            .arg(place)
            .arg(language(output))
            .args(command)
            .env("LEASEHOLD_KEY", held.keys())
            .env("LEASEHOLD_TOKEN", held.tokens())
            // It may hold a password, and is the business of the tool.
            .env_remove("LEASEHOLD_STORE")
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let id = i32::try_from(child.id()).map_err(|why| Failure::system("a process id", &why))?;
        Ok(Self {
            id: Pid::from_raw(id),
            terminal,
            stopped_by: None,
            end: None,
            is_last: false,
        })
    }

    /// The tool ends as its command did.
    pub(super) fn status(&self, end: End) -> Status {
        match end {
            // An exit status is a byte.
            End::Exited(status) => Status::Code(u8::try_from(status & 0xff).unwrap_or(u8::MAX)),
            End::Signalled(number) => match Signal::try_from(number) {
                Ok(signal @ (Signal::SIGINT | Signal::SIGQUIT)) if self.terminal.is_some() => {
                    Status::Interrupt(signal)
                }
                Ok(signal) => Status::Signal(signal),
                Err(_) => Status::Code(code::of_number(number)),
            },
        }
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), NotAllowed> {
        match killpg(self.id, signal) {
            Err(Errno::EPERM) => Err(NotAllowed),
            // Any other error means that no process is left.
            _ => Ok(()),
        }
    }

    /// Forwards a signal that the tool received.
    pub(super) fn forward(&self, signal: Signal) -> Result<(), NotAllowed> {
        if signal == Signal::SIGTSTP {
            return Ok(());
        }
        if signal == Signal::SIGCONT {
            // `fg` has put us into the foreground, where the command belongs.
            if let Some(terminal) = Terminal::of_ours() {
                let _ = terminal.give(self.id);
            }
        }
        self.signal(signal)?;
        if asks_to_end(signal) {
            // A stopped command cannot react to it.
            self.signal(Signal::SIGCONT)?;
        }
        Ok(())
    }

    /// Takes note of every child that has ended or was stopped: the command, and processes that it
    /// has left behind.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        self.stopped_by = None;
        loop {
            let (id, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(changed)) => changed,
                Ok(None) => return Ok(()),
                Err(rustix::io::Errno::CHILD) => {
                    self.is_last = true;
                    return Ok(());
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(why) => {
                    return Err(Failure::system("the command could not be waited for", &why));
                }
            };
            if id.as_raw_nonzero().get() != self.id.as_raw() {
                continue;
            }
            if let Some(status) = status.exit_status() {
                self.end = Some(End::Exited(status));
            } else if let Some(number) = status.terminating_signal() {
                self.end = Some(End::Signalled(number));
            } else {
                self.stopped_by = status.stopping_signal();
            }
        }
    }

    /// How the command ended, if it has, and, with `children`, if none of its processes is left.
    pub(super) fn end(&self, children: bool) -> Option<End> {
        self.end.filter(|_| self.is_last || !children)
    }

    /// Whether no process of the command is left: on Linux those that it left behind became
    /// children of ours.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Continues a command that was suspended from the terminal: its lease would run out, and the
    /// terminal would be without a foreground. A command that was stopped by SIGSTOP stays stopped.
    pub(super) fn keep_going(&mut self) {
        if self.stopped_by.take() == Some(Signal::SIGTSTP as i32) {
            let _ = self.signal(Signal::SIGCONT);
        }
    }
}

impl Drop for Child {
    /// The shell that started the tool reads from the terminal next.
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            // It fails if the terminal is gone.
            let _ = terminal.give(getpgrp());
        }
    }
}
