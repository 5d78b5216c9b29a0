//! Deletes what dead processes left: unfinished files, sockets that nobody reads, life files that
//! nobody locks.

use rustix::fs::AtFlags;

use super::directory::{Directory, names};
use super::{process, wake};

/// How old an unfinished file or an abandoned socket is before it is deleted, in seconds.
const UNFINISHED: u64 = 60;
/// How old the life file of a dead process is before it is deleted, in seconds: longer than a TTL.
const LONG_DEAD: u64 = 24 * 3600;

/// `now`: the wall clock, in seconds.
pub(super) fn remove_stale(directory: &Directory, now: u64) {
    let older_than = |folder, name: &str, age: u64| {
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| now.saturating_sub(stat.st_mtime as u64) > age)
    };
    let remove = |folder, name: &str| {
        // Another process may have been faster.
        let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
    };
    for name in names(directory.keys()).unwrap_or_default() {
        if name.starts_with('~') && older_than(directory.keys(), &name, UNFINISHED) {
            remove(directory.keys(), &name);
        }
    }
    for name in names(directory.sockets()).unwrap_or_default() {
        if older_than(directory.sockets(), &name, UNFINISHED)
            && wake::is_abandoned(directory, &name)
        {
            remove(directory.sockets(), &name);
        }
    }
    for name in names(directory.lives()).unwrap_or_default() {
        if older_than(directory.lives(), &name, LONG_DEAD) && process::is_unlocked(directory, &name)
        {
            remove(directory.lives(), &name);
        }
    }
}
