//! [`Directory`]: opens and checks the directory of a store, and the folders in it.
//!
//! `DIR/leasehold` says what the directory is: format, boot, time namespace, tokens.
//! `k/<boot>/<key>` are the locks, `w/` the sockets that wake processes, `p/` the life files. No
//! symbolic link is followed beneath the directory's own path.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::unistd::Group;
use rustix::fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::errors::no_effect;
use super::options::FileOptions;
use super::slots;
use super::tokens::{Meta, Tokens};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::hex;
use crate::model::random::random_bytes;

/// File systems of this machine whose `flock` and rename are atomic among all its processes, by
/// their magic numbers.
const FILE_SYSTEMS: &[(i64, &str)] = &[
    (0xEF53, "ext"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0x0102_1994, "tmpfs"),
    (0x794C_7630, "overlayfs"),
];

/// An open directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The device and the number of the directory.
    identity: (u64, u64),
    /// Locked (shared) for as long as it is open, so that a process with another boot id sees that
    /// this one is alive.
    keys: OwnedFd,
    sockets: OwnedFd,
    lives: OwnedFd,
    /// The name of this process here: random, so that nobody else has it.
    pub(super) id: u64,
    pub(super) boot: [u8; 16],
    pub(super) tokens: Tokens,
    file_mode: Mode,
}

impl Directory {
    pub(super) fn open(
        options: &FileOptions,
        now_micros: u64,
        wall_micros: u64,
    ) -> Result<Self, Error> {
        let path = &plain(&options.directory)?;
        check_file_size(path)?;
        let group = options.group.as_deref().map(group_id).transpose()?;
        let (folder_mode, file_mode) = match group {
            None => (0o700, 0o600),
            Some(_) => (0o2770, 0o660),
        };
        make(path, group, folder_mode)?;
        let fail = |errno| no_effect("open the directory of the locks", path, errno);
        let root = open_folder(rustix::fs::CWD, path).map_err(fail)?;
        check_file_system(root.as_fd(), path)?;
        let stat = rustix::fs::fstat(&root).map_err(fail)?;
        check_owner(&stat, path, group)?;
        let sub = |name: &str| {
            folder(root.as_fd(), name, group, folder_mode)
                .map_err(|errno| no_effect("open a folder of the locks", path, errno))
        };
        let (sockets, lives, all_keys) = (sub("w")?, sub("p")?, sub("k")?);
        let file_mode = Mode::from_raw_mode(file_mode);
        let boot_text = match &options.boot {
            Some(boot) => boot.clone(),
            None => read_system("/proc/sys/kernel/random/boot_id")?,
        };
        let meta = Meta {
            boot: digits(&boot_text),
            time_namespace: time_namespace()?,
        };
        let name = hex(meta.boot);
        let keys = folder(all_keys.as_fd(), &*name, group, folder_mode)
            .and_then(|keys| {
                rustix::fs::flock(&keys, FlockOperation::NonBlockingLockShared).map(|()| keys)
            })
            .map_err(|errno| no_effect("open a folder of the locks", path, errno))?;
        let tokens = Tokens::open(
            (root, path.clone(), file_mode),
            &meta,
            |boot| {
                is_in_use(all_keys.as_fd(), boot).map_err(|errno| {
                    no_effect("see whether another boot id is in use", path, errno)
                })
            },
            now_micros,
            wall_micros,
        )?;
        remove_other_boots(all_keys.as_fd(), &name);
        Ok(Self {
            path: path.clone(),
            identity: identity(&stat),
            keys,
            sockets,
            lives,
            id: u128::from_le_bytes(random_bytes()?) as u64,
            boot: meta.boot,
            tokens,
            file_mode,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    ///
    /// `Unavailable` if the directory was moved, deleted or replaced: processes that open it now
    /// see other locks.
    pub(super) fn check_place(&self) -> Result<(), Error> {
        let here = rustix::fs::statat(rustix::fs::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        match here {
            Ok(stat) if identity(&stat) != self.identity => Err(self.moved()),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(self.moved()),
            // Whatever else fails shows at the file.
            _ => Ok(()),
        }
    }

    fn moved(&self) -> Error {
        Error::unavailable(format!(
            "the directory of the locks was moved, deleted or replaced while this process uses it: directory={}; start this process again",
            self.path.display()
        ))
    }

    pub(super) fn keys(&self) -> BorrowedFd<'_> {
        self.keys.as_fd()
    }

    pub(super) fn sockets(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    pub(super) fn lives(&self) -> BorrowedFd<'_> {
        self.lives.as_fd()
    }

    /// Makes a file of this store. The process's umask has no effect on it.
    pub(super) fn create(
        &self,
        folder: BorrowedFd<'_>,
        name: &str,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        create(folder, name, flags, self.file_mode)
    }

    pub(super) fn file_mode(&self) -> Mode {
        self.file_mode
    }
}

fn create(
    folder: BorrowedFd<'_>,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(folder, name, flags, mode)?;
    if mode.contains(Mode::RGRP) {
        rustix::fs::fchmod(&file, mode)?;
    }
    Ok(file)
}

/// The names in a folder, without `.` and `..`.
pub(super) fn names(folder: BorrowedFd<'_>) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !matches!(name.as_str(), "." | "..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn open_folder(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Makes the directory and what is above it.
fn make(path: &Path, group: Option<Gid>, mode: RawMode) -> Result<(), Error> {
    let fail = |errno| no_effect("make the directory of the locks", path, errno);
    let is_missing = |path: &Path| {
        std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    if !is_missing(path) && group.is_none() {
        return Ok(());
    }
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|path| is_missing(path))
        .collect();
    for above in missing.into_iter().skip(1).rev() {
        match rustix::fs::mkdir(above, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fail(errno)),
        }
    }
    drop(folder(rustix::fs::CWD, path, group, mode).map_err(fail)?);
    Ok(())
}

/// Opens a folder, and makes it if it is missing.
fn folder(
    at: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    group: Option<Gid>,
    mode: RawMode,
) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let found = open_folder(at, name)?;
            // A process that was killed after it made a folder for a group left it empty, and to
            // its user alone.
            let stat = rustix::fs::fstat(&found)?;
            let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
            if group.is_none() || !is_ours || !names(found.as_fd())?.is_empty() {
                return Ok(found);
            }
        }
        Err(errno) => return Err(errno),
    }
    let made = open_folder(at, name)?;
    if group.is_some() {
        rustix::fs::fchown(&made, None, group)?;
    }
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
    Ok(made)
}

pub(super) fn is_local(kind: i64) -> bool {
    FILE_SYSTEMS.iter().any(|(known, _)| *known == kind)
}

fn check_file_system(root: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    let stat = rustix::fs::fstatfs(root)
        .map_err(|errno| no_effect("read the kind of the file system", path, errno))?;
    let kind = stat.f_type as i64;
    if is_local(kind) {
        return Ok(());
    }
    let names: Vec<_> = FILE_SYSTEMS.iter().map(|(_, name)| *name).collect();
    Err(Error::unsupported(format!(
        "locks in files need a local file system, and this one is of another kind (a network's, FUSE, 9p): directory={} kind={kind:#x}; use one of {}, or a store with a server",
        path.display(),
        names.join(", ")
    )))
}

/// A write beyond the limit of the process would end it (`SIGXFSZ`).
fn check_file_size(path: &Path) -> Result<(), Error> {
    let needed = slots::LARGEST_FILE;
    let limit = getrlimit(Resource::Fsize).current;
    match limit.filter(|limit| *limit < needed) {
        None => Ok(()),
        Some(limit) => Err(Error::new(
            ErrorKind::Denied,
            format!(
                "this process may not write files as large as the locks' are: directory={} limit={limit} needed={needed}; raise the limit of a file's size (ulimit -f, LimitFSIZE=)",
                path.display()
            ),
        )),
    }
}

/// An absolute path that ends with a name: a slash or a dot at its end would follow a symbolic
/// link.
fn plain(path: &Path) -> Result<PathBuf, Error> {
    let absolute = std::path::absolute(path).map_err(|error| {
        Error::invalid(format!(
            "this is no path of a directory: {error}; use file:///path"
        ))
    })?;
    Ok(absolute.components().collect())
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Only users who may hold the locks may write to the directory.
fn check_owner(stat: &Stat, path: &Path, group: Option<Gid>) -> Result<(), Error> {
    let user = rustix::process::geteuid().as_raw();
    let is_trusted = match group {
        None => (stat.st_uid == user || stat.st_uid == 0) && stat.st_mode & 0o022 == 0,
        Some(group) => stat.st_gid == group.as_raw() && stat.st_mode & 0o002 == 0,
    };
    if is_trusted {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Denied,
        format!(
            "others may write to the directory of the locks: directory={} uid={} gid={} mode={:o}; it must belong to this user or root and be writable for nobody else, or name its group: group=NAME",
            path.display(),
            stat.st_uid,
            stat.st_gid,
            stat.st_mode & 0o7777
        ),
    ))
}

fn group_id(group: &str) -> Result<Gid, Error> {
    if let Ok(number) = group.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(group) {
        Ok(Some(found)) => Ok(Gid::from_raw(found.gid.as_raw())),
        Ok(None) | Err(nix::errno::Errno::ENOENT) => Err(Error::invalid(format!(
            "there is no such group: group={group:?}; use a name of the group database (getent group), or a number"
        ))),
        Err(errno) => Err(Error::unavailable(format!(
            "the group database cannot be read: group={group:?} error={errno}"
        ))),
    }
}

fn read_system(path: &str) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| unread("boot", path, &error))
}

fn unread(what: &str, path: &str, error: &std::io::Error) -> Error {
    Error::unavailable(format!(
        "cannot read the identity of this {what}: path={path} error={error}"
    ))
}

/// Two processes with different boot clocks cannot share times. Kernels without time namespaces
/// have one clock.
fn time_namespace() -> Result<String, Error> {
    let path = "/proc/self/ns/time";
    match std::fs::read_link(path) {
        Ok(name) => Ok(name.to_string_lossy().into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok("none".to_owned()),
        Err(error) => Err(unread("time namespace", path, &error)),
    }
}

/// The first 16 bytes that a text's hexadecimal digits give; shorter texts are filled up.
fn digits(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let digits = text.chars().filter_map(|digit| digit.to_digit(16)).take(32);
    for (index, digit) in digits.enumerate() {
        bytes[index / 2] |= (digit as u8) << (4 * (1 - index % 2));
    }
    bytes
}

/// Whether a process of another boot id lives. A container may have a boot id of its own on the
/// same machine. Only a folder that is not there is not in use: any other error says nothing about
/// its processes.
fn is_in_use(all_keys: BorrowedFd<'_>, boot: &str) -> rustix::io::Result<bool> {
    match open_folder(all_keys, boot) {
        Ok(folder) => lock_alone(folder.as_fd()).map(|is_alone| !is_alone),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn lock_alone(folder: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    match rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Deletes the locks of other boots: their holders are gone. What fails here is left to the next.
fn remove_other_boots(all_keys: BorrowedFd<'_>, ours: &str) {
    for other in names(all_keys).unwrap_or_default() {
        if other == ours {
            continue;
        }
        let Ok(folder) = open_folder(all_keys, &*other) else {
            continue;
        };
        if lock_alone(folder.as_fd()) != Ok(true) {
            continue;
        }
        for name in names(folder.as_fd()).unwrap_or_default() {
            // Another process may be deleting it too.
            let _ = rustix::fs::unlinkat(&folder, &*name, AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(all_keys, &*other, AtFlags::REMOVEDIR);
    }
}
