//! The tool's own program, which it starts again as the parent of a command and as a counting
//! process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command that starts this very program, though an upgrade of the package has put another in the
/// place of its file.
pub(crate) fn command() -> io::Result<Command> {
    #[cfg(target_os = "linux")]
    let program = "/proc/self/exe";
    #[cfg(not(target_os = "linux"))]
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg0("leasehold");
    Ok(command)
}
