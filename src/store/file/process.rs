//! [`Process`]: this process as other processes know it, and whether another one is dead.
//!
//! A life file is locked for as long as its process, or a child that inherited it, lives. No
//! process id is used, so none can be used again.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use super::directory::Directory;
use super::errors::no_effect;
use super::options::{FileOptions, OnDeath};
use crate::model::error::Error;
use crate::store::Origin;

/// This process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) origin: Origin,
    /// Locked while it is open.
    life: Option<OwnedFd>,
}

impl Process {
    pub(super) fn new(directory: &Directory, options: &FileOptions) -> Result<Self, Error> {
        let process = directory.id;
        let ends_with_process = options.on_death == OnDeath::Now;
        let life = ends_with_process
            .then(|| lock_life_file(directory, &name(process), options.children_hold))
            .transpose()?;
        Ok(Self {
            origin: Origin {
                process,
                ends_with_process,
            },
            life,
        })
    }

    /// Whether another process is dead. A process whose life file is missing counts as alive: the
    /// TTL ends its holds.
    pub(super) fn is_dead(&self, directory: &Directory, process: u64) -> bool {
        process != self.origin.process && is_unlocked(directory, &name(process))
    }

    /// Deletes the life file, which nobody needs after the last release.
    pub(super) fn end(&self, directory: &Directory) {
        if self.life.is_some() {
            let name = name(self.origin.process);
            let _ = rustix::fs::unlinkat(directory.lives(), &*name, AtFlags::empty());
        }
    }
}

/// The name of a process's files.
pub(super) fn name(process: u64) -> String {
    format!("{process:016x}")
}

fn lock_life_file(directory: &Directory, name: &str, is_inherited: bool) -> Result<OwnedFd, Error> {
    let fail = |errno| no_effect("make a life file", directory.path(), errno);
    let mut flags = OFlags::EXCL;
    if !is_inherited {
        flags |= OFlags::CLOEXEC;
    }
    let file = (directory.create(directory.lives(), name, flags)).map_err(fail)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(fail)?;
    Ok(file)
}

/// Whether the life file exists and nobody locks it.
pub(super) fn is_unlocked(directory: &Directory, name: &str) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory.lives(), name, flags, Mode::empty()) else {
        return false;
    };
    let is_free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
    is_free
}
