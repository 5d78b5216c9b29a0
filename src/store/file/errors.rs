//! From an error of the system to an [`Error`].

use std::path::Path;

use nix::unistd::Uid;
use rustix::io::Errno;

use crate::model::error::{Error, ErrorKind};

/// What to type for a user that has no directory of its own, such as that of a service.
pub(super) fn a_directory_of_this_user() -> String {
    let user = Uid::effective();
    let place = format!("/var/lib/leasehold-{user}");
    format!(
        "use a directory of this user: as root, install -d -m 700 -o {user} {place}; then use file://{place}"
    )
}

/// A request that had no effect.
pub(super) fn no_effect(what: &str, directory: &Path, errno: Errno) -> Error {
    let directory = directory.display();
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Error::new(
            ErrorKind::Denied,
            format!(
                "this user may not {what}: directory={directory} error={errno}; {}; for several users add ?group=NAME",
                a_directory_of_this_user()
            ),
        ),
        Errno::LOOP | Errno::NOTDIR => Error::new(
            ErrorKind::Denied,
            format!(
                "cannot {what}: directory={directory} error={errno}; there is a symbolic link or another kind of file in the way"
            ),
        ),
        Errno::NOSPC | Errno::DQUOT => Error::unavailable(format!(
            "no space is left to {what}: directory={directory}; free some, nothing was changed"
        )),
        errno => Error::unavailable(format!(
            "cannot {what}: directory={directory} error={errno}"
        )),
    }
}

/// A write that failed: it had no effect if there was no space for it, and is otherwise in doubt.
pub(super) fn of_write(directory: &Path, errno: Errno) -> Error {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::PERM => {
            no_effect("write the state of a lock", directory, errno)
        }
        errno => Error::in_doubt(format!(
            "the state of a lock may or may not be written: directory={} error={errno}",
            directory.display()
        )),
    }
}
