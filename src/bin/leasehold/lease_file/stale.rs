//! Deletes the lease files of tools that were killed: they lie in memory, where only a boot would delete them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::{Machine, read};

/// The beginning of the name of every lease file; the process id of its tool follows.
pub(super) const NAME: &str = "leasehold-";

/// Deletes those of a user whose lease is over and whose tool is gone. What cannot be read is left where it is.
pub(super) fn remove_stale(folder: &Path, user: u32) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if maker(&entry.file_name().to_string_lossy()).is_some_and(is_gone) && is_over(&path, user)
        {
            // Another tool may have been faster.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The process that made a file of this name.
fn maker(name: &str) -> Option<Pid> {
    let (process, made_at) = name.strip_prefix(NAME)?.split_once('-')?;
    made_at.parse::<u64>().ok()?;
    let process = process.parse().ok()?;
    (process > 0).then_some(Pid::from_raw(process))
}

/// A process of another container counts as gone. Its lease is not over while it renews it.
fn is_gone(process: Pid) -> bool {
    kill(process, None) == Err(Errno::ESRCH)
}

/// Whether the file says that its lease is over, by a clock that is ours too.
fn is_over(path: &Path, user: u32) -> bool {
    // Looked at before it is opened: others may put a pipe there, whose opening would wait for a writer.
    let is_ours =
        std::fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.uid() == user);
    let record = || read(&File::open(path).ok()?).ok();
    let machine = Machine::this();
    is_ours
        && record()
            .zip(machine.ok())
            .is_some_and(|(record, machine)| record.machine == machine && record.is_over())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_lease_files_name_a_process() {
        assert_eq!(maker("leasehold-12-345"), Some(Pid::from_raw(12)));
        for name in [
            "leasehold-12",
            "leasehold-0-345",
            "leasehold--1-345",
            "leasehold-tool-12",
            "leasehold-12-x",
            "other-12-345",
        ] {
            assert_eq!(maker(name), None, "{name}");
        }
    }
}
