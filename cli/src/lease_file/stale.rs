//! Deletes the lease files of tools that were killed: they lie in memory, where only a boot would
//! delete them.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::record::namespace;
use super::{Machine, read};

/// The beginning of the name of every lease file. The process id of its tool follows, the time, and
/// the tool's process namespace.
pub(super) const NAME: &str = "leasehold-";

/// How old the last record of a file is before the file is looked at. So a tool opens no file of
/// those that run beside it.
const OLD: Duration = Duration::from_secs(60);

/// Deletes those of the user of `ours`, a file that was just made, whose lease is over and whose
/// tool is gone. What is no record is left where it is, unless it is empty: that tool was killed
/// before it could write one.
pub(super) fn remove_stale(folder: &Path, ours: &Metadata) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if !maker(&entry.file_name().to_string_lossy()).is_some_and(is_gone) {
            continue;
        }
        // Not opened yet: others may put a pipe there, whose opening would wait for a writer.
        let file = std::fs::symlink_metadata(&path).ok();
        let old = file.filter(|file| file.is_file() && is_old(file, ours));
        if old.is_some_and(|file| file.len() == 0 || is_over(&path)) {
            // Another tool may have been faster.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether the tool that made the file of this path may be alive. One of another process namespace
/// may.
pub(super) fn may_have_its_tool(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_seen = name.ends_with(&format!("-{}", namespace("pid")));
    maker(&name).is_some_and(|maker| !is_seen || !is_gone(maker))
}

/// The process that made a file of this name.
fn maker(name: &str) -> Option<Pid> {
    let (process, rest) = name.strip_prefix(NAME)?.split_once('-')?;
    let (made_at, namespace) = rest.split_once('-')?;
    made_at.parse::<u64>().ok()?;
    namespace.parse::<u64>().ok()?;
    let process = process.parse().ok()?;
    (process > 0).then_some(Pid::from_raw(process))
}

/// A process of another container counts as gone. Its lease is not over while it renews it.
fn is_gone(process: Pid) -> bool {
    kill(process, None) == Err(Errno::ESRCH)
}

fn is_old(file: &Metadata, ours: &Metadata) -> bool {
    let age = ours.mtime().saturating_sub(file.mtime());
    file.uid() == ours.uid() && Duration::from_secs(age.max(0) as u64) > OLD
}

/// Whether the file says that its lease is over, by a clock that is ours too.
fn is_over(path: &Path) -> bool {
    let record = File::open(path).and_then(|file| read(&file));
    let known = record.ok().zip(Machine::this().ok());
    known.is_some_and(|(record, machine)| record.machine == machine && record.is_over())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_lease_files_name_a_process() {
        assert_eq!(maker("leasehold-12-345-6"), Some(Pid::from_raw(12)));
        for name in [
            "leasehold-12",
            "leasehold-12-345",
            "leasehold-0-345-6",
            "leasehold--1-345-6",
            "leasehold-tool-12-6",
            "leasehold-12-x-6",
            "leasehold-12-345-x",
            "other-12-345-6",
        ] {
            assert_eq!(maker(name), None, "{name}");
        }
    }
}
