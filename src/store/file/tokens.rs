//! [`Tokens`]: numbers that grow over reboots and over a wall clock that was set back (I8).
//!
//! A token is at least `base + boot time`, in microseconds. The file `leasehold` keeps the base,
//! which is set once for each boot: `max(wall clock - boot time, mark)`. The mark is above every
//! token that was issued: before a token passes it, it is moved an hour ahead and written to the
//! disk. If the directory was deleted, or is in memory and the machine rebooted, tokens grow as far
//! as the wall clock does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::errors::{no_effect, of_write};
use super::slots;
use crate::model::error::Error;
use crate::model::holder::hex;
use crate::model::token::FencingToken;

const FORMAT: &str = "leasehold-2";
/// An hour, in microseconds.
const AHEAD: u64 = 3_600_000_000;
/// How often a locked file is tried again, with a pause of 2 ms: for 20 s when a store is opened,
/// which may wait for a disk, and for 0.4 s in a request.
const AT_OPEN: u32 = 10_000;
const IN_A_REQUEST: u32 = 200;
const PAUSE: Duration = Duration::from_millis(2);
/// The boot that the file itself is written under: it outlives all.
const NO_BOOT: [u8; 16] = [0; 16];

/// What identifies the clock that all times count by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Meta {
    pub(super) boot: [u8; 16],
    pub(super) time_namespace: String,
}

/// The numbers of one directory.
#[derive(Debug)]
pub(super) struct Tokens {
    root: OwnedFd,
    path: PathBuf,
    file_mode: Mode,
    boot: String,
    base: u64,
    /// As this process last saw it. The mark only grows.
    mark: AtomicU64,
}

/// The file's content.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    boot: String,
    time_namespace: String,
    base: u64,
    mark: u64,
}

impl Tokens {
    /// `is_in_use`: whether a process of another boot id lives.
    pub(super) fn open(
        (root, path, file_mode): (OwnedFd, PathBuf, Mode),
        meta: &Meta,
        is_in_use: impl Fn(&str) -> Result<bool, Error>,
        now_micros: u64,
        wall_micros: u64,
    ) -> Result<Self, Error> {
        let mut tokens = Self {
            root,
            path,
            file_mode,
            boot: hex(meta.boot),
            base: 0,
            mark: AtomicU64::new(0),
        };
        let content = tokens.locked(AT_OPEN, |content| {
            let mark = content.as_ref().map_or(0, |content| content.mark);
            match content {
                Some(content) if content.boot == hex(meta.boot) => {
                    if content.time_namespace != meta.time_namespace {
                        return Err(Error::unsupported(
                            "another time namespace uses this directory, and its boot clock differs; use a directory for each time namespace",
                        ));
                    }
                    Ok(content)
                }
                Some(content) if is_in_use(&content.boot)? => Err(Error::unsupported(
                    "processes with another boot id use this directory, in a container for example, and would not see these locks; use a directory for each boot id",
                )),
                _ => Ok(Content {
                    boot: hex(meta.boot),
                    time_namespace: meta.time_namespace.clone(),
                    base: wall_micros.saturating_sub(now_micros).max(mark),
                    mark,
                }),
            }
        })?;
        tokens.base = content.base;
        tokens.mark = AtomicU64::new(content.mark);
        Ok(tokens)
    }

    /// The smallest token that may be issued at this time.
    pub(super) fn least(&self, now_micros: u64) -> u64 {
        self.base.saturating_add(now_micros)
    }

    /// The token that follows `last`.
    pub(super) fn next(&self, last: u64, now_micros: u64) -> Result<FencingToken, Error> {
        let token = FencingToken::new((last + 1).max(self.least(now_micros)))?;
        if token.number() >= self.mark.load(Ordering::Relaxed) {
            let boot = &self.boot;
            let content = self.locked(IN_A_REQUEST, |content| match content {
                // Another process moved it.
                Some(content) if content.boot == *boot && content.mark > token.number() => {
                    Ok(content)
                }
                Some(content) if content.boot == *boot => Ok(Content {
                    mark: token.number() + AHEAD,
                    ..content
                }),
                _ => Err(Error::corrupt(
                    "the file of the tokens is missing or of another boot, while this process uses it; restart all processes that use the directory",
                )),
            })?;
            self.mark.fetch_max(content.mark, Ordering::Relaxed);
        }
        Ok(token)
    }

    /// Changes the file while no other process does, and waits until it is on the disk.
    fn locked(
        &self,
        patience: u32,
        change: impl FnOnce(Option<Content>) -> Result<Content, Error>,
    ) -> Result<Content, Error> {
        let fail = |errno| no_effect("open the file of the tokens", &self.path, errno);
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.root, "leasehold", flags, self.file_mode).map_err(fail)?;
        self.lock(file.as_fd(), patience)?;
        let size = rustix::fs::fstat(&file).map_err(fail)?.st_size;
        let (sequence, before) = if size == 0 {
            if self.file_mode.contains(Mode::RGRP) {
                rustix::fs::fchmod(&file, self.file_mode).map_err(fail)?;
            }
            (0, None)
        } else {
            let slot = slots::read(file.as_fd(), size as u64, &NO_BOOT, &self.path)?;
            let content = Content::parse(&slot.payload).ok_or_else(|| {
                Error::corrupt(format!(
                    "the file of the tokens is of another format: directory={}; use a directory that only this version of leasehold has used, or delete this one while nobody uses it",
                    self.path.display()
                ))
            })?;
            (slot.sequence, Some(content))
        };
        let after = change(before.clone())?;
        if before.as_ref() != Some(&after) {
            let bytes = after.text().into_bytes();
            slots::write(file.as_fd(), sequence + 1, &NO_BOOT, &bytes, &self.path)?;
            match rustix::fs::fdatasync(&file) {
                // A file system without a disk.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(of_write(&self.path, errno)),
            }
        }
        // A forked child shares the open file, so closing it may not unlock it.
        rustix::fs::flock(&file, FlockOperation::Unlock).map_err(fail)?;
        Ok(after)
    }
}

impl Tokens {
    /// Another process holds the lock for some writes only, once an hour; but it may be stopped
    /// meanwhile.
    fn lock(&self, file: BorrowedFd<'_>, patience: u32) -> Result<(), Error> {
        for _ in 0..patience {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                // Nobody unparks this thread: a pause. An early end costs one more look.
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::park_timeout(PAUSE),
                Err(errno) => {
                    return Err(no_effect("lock the file of the tokens", &self.path, errno));
                }
            }
        }
        Err(Error::unavailable(format!(
            "another process stays in its request to the file of the tokens: directory={}; it may be stopped (SIGSTOP) or starved",
            self.path.display()
        )))
    }
}

impl Content {
    fn text(&self) -> String {
        let Self {
            boot,
            time_namespace,
            base,
            mark,
        } = self;
        format!("{FORMAT}\n{boot}\n{time_namespace}\n{base}\n{mark}\n")
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        if lines.next()? != FORMAT {
            return None;
        }
        Some(Self {
            boot: lines.next()?.to_owned(),
            time_namespace: lines.next()?.to_owned(),
            base: lines.next()?.parse().ok()?,
            mark: lines.next()?.parse().ok()?,
        })
    }
}
