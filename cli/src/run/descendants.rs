//! The processes that a command leaves behind when it ends.
//!
//! On Linux the tool is their subreaper: a process whose parent has ended becomes a child of the
//! tool, also after `setsid`.

#[cfg(target_os = "linux")]
use super::peers::processes;

/// From now on processes that the command leaves behind become our children.
pub(super) fn adopt() {
    #[cfg(target_os = "linux")]
    // It fails on no kernel that has the call; without it, only processes of the command's group
    // are found.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// How many processes the command has left behind.
#[cfg(target_os = "linux")]
pub(super) fn count() -> usize {
    let all = processes();
    let us = nix::unistd::getpid().as_raw();
    let mut ours = vec![us];
    // Parents may be listed after their children.
    loop {
        let before = ours.len();
        for process in &all {
            if ours.contains(&process.parent) && !ours.contains(&process.id) {
                ours.push(process.id);
            }
        }
        if ours.len() == before {
            break;
        }
    }
    let is_running = |id: &i32| all.iter().any(|one| one.id == *id && !one.is_dead);
    ours[1..].iter().filter(|id| is_running(id)).count()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn count() -> usize {
    0
}
