//! A process that ends with the one that started it.

use nix::unistd::{Pid, getppid};

/// From now on this process is killed when its parent dies.
#[cfg(target_os = "linux")]
pub(crate) fn die_with(parent: Pid) -> Result<(), String> {
    use nix::sys::signal::Signal;

    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|why| why.to_string())?;
    // It may have died before we asked.
    if getppid() == parent {
        Ok(())
    } else {
        Err("the tool has ended".to_owned())
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with(parent: Pid) -> Result<(), String> {
    if getppid() == parent {
        Ok(())
    } else {
        Err("the tool has ended".to_owned())
    }
}
