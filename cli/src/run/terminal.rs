//! The foreground of the terminal.

use std::fs::File;
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Our controlling terminal, while we are in its foreground.
#[derive(Debug)]
pub(super) struct Terminal(File);

impl Terminal {
    /// `None` without a terminal, and in its background.
    pub(super) fn of_ours() -> Option<Self> {
        let terminal = Self::open()?;
        terminal.is_ours().then_some(terminal)
    }

    pub(super) fn open() -> Option<Self> {
        let file = File::options().read(true).write(true).open("/dev/tty");
        file.ok().map(Self)
    }

    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(self.0.as_fd()) == Ok(getpgrp())
    }

    /// Puts a process group into the foreground. A caller in the background would be stopped by
    /// SIGTTOU, so it is blocked meanwhile.
    pub(super) fn give(&self, group: Pid) -> nix::Result<()> {
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let given = tcsetpgrp(self.0.as_fd(), group);
        before.thread_set_mask()?;
        given
    }
}
