//! [`KeyFile`]: the file of one key, locked for one step.
//!
//! A file appears whole and locked, by a rename that replaces nothing, so an empty file is a
//! damaged one. It says that nobody holds the key; the step that made it decides after that. The
//! step that leaves nothing behind deletes the file, while it is locked, or writes that nobody
//! holds the key.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::codec::{self, Record};
use super::crowds::Known;
use super::directory::Directory;
use super::errors::{no_effect, of_write};
use super::process;
use super::slots::{self, Mark};
use crate::model::error::Error;
use crate::model::key::Key;

/// How long whoever finds the queue of a key full should wait before it asks again.
const FULL: Duration = Duration::from_secs(1);

/// The state of a key, locked until this is dropped.
#[derive(Debug)]
pub(super) struct KeyFile<'a> {
    directory: &'a Directory,
    key: &'a Key,
    name: String,
    /// `None`: there is no file, and no lock.
    file: Option<OwnedFd>,
    sequence: u64,
    /// Where the state is, if it is long.
    mark: Option<Mark>,
}

/// Another process works on the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InUse;

/// The file name of a key. A key has no comma.
pub(super) fn name_of(key: &Key) -> String {
    key.as_str().replace('/', ",")
}

/// The key of a file name; `None` for an unfinished file.
pub(super) fn key_of(name: &str) -> Option<Key> {
    Key::parse(&name.replace(',', "/")).ok()
}

impl<'a> KeyFile<'a> {
    /// Locks the file of a key, and reads it, unless `known` is what it has. If it is in use,
    /// `known` is left.
    pub(super) fn open(
        directory: &'a Directory,
        key: &'a Key,
        known: &mut Option<Known>,
    ) -> Result<Result<(Self, Record), InUse>, Error> {
        let mut file = Self {
            directory,
            key,
            name: name_of(key),
            file: None,
            sequence: 0,
            mark: None,
        };
        let fail = |errno| no_effect("open the file of a lock", directory.path(), errno);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = match rustix::fs::openat(directory.keys(), &*file.name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(Ok((file, Record::default()))),
            Err(errno) => return Err(fail(errno)),
        };
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(Err(InUse)),
            Err(errno) => return Err(fail(errno)),
        }
        let opened = file.file.insert(opened);
        let stat = rustix::fs::fstat(&*opened).map_err(fail)?;
        if stat.st_nlink == 0 {
            // Deleted between the two calls: there may be a new one.
            return Ok(Err(InUse));
        }
        // A file with a second name (`cp -l`) would outlive its deletion, and be taken for the lock
        // by whoever had opened it.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            return Err(damaged(directory, key));
        }
        if let Some(Known { mark, record }) = known.take()
            && mark.is_newest(opened.as_fd())
        {
            (file.sequence, file.mark) = (mark.sequence, Some(mark));
            return Ok(Ok((file, record)));
        }
        let size = stat.st_size as u64;
        let slot = slots::read(opened.as_fd(), size, &directory.boot, directory.path())?;
        let record = codec::decode(key, &slot.payload).ok_or_else(|| damaged(directory, key))?;
        (file.sequence, file.mark) = (slot.sequence, slot.mark);
        Ok(Ok((file, record)))
    }

    pub(super) fn key(&self) -> &Key {
        self.key
    }

    pub(super) fn is_missing(&self) -> bool {
        self.file.is_none()
    }

    /// What a later step need not read again, if the file has this state. Never after a write that
    /// failed.
    pub(super) fn known(&mut self, record: Record) -> Option<Known> {
        let mark = self.mark.take()?;
        Some(Known { mark, record })
    }

    /// Replaces the state of a file that is there. `is_longer`: one claim more holds or waits. It
    /// has to leave room for all places to become holds at once, so whatever ends or changes a
    /// claim that was let in has room.
    pub(super) fn write(&mut self, record: &Record, is_longer: bool) -> Result<(), Error> {
        let bytes = codec::encode(self.key, record);
        let places = record.line.places.len();
        let room = if is_longer { places * codec::GROWS } else { 0 };
        if bytes.len() + room > slots::MOST {
            return Err(full(self.key, places));
        }
        let file = self.file.as_ref().ok_or_else(|| missing(self.key))?;
        let Directory { boot, .. } = self.directory;
        let path = self.directory.path();
        self.mark = None;
        self.mark = slots::write(file.as_fd(), self.sequence + 1, boot, &bytes, path)?;
        Ok(())
    }

    /// Makes the file of a key that has none, locked before anybody can see it. It is in use if
    /// another process made it meanwhile: nothing was changed.
    pub(super) fn make(&mut self) -> Result<Result<(), InUse>, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let directory = self.directory;
        let free = codec::encode(self.key, &Record::default());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = format!("~{}.{number}", process::name(directory.id));
        let fail = |errno| no_effect("make the file of a lock", directory.path(), errno);
        let file = directory
            .create(
                directory.keys(),
                &unfinished,
                OFlags::EXCL | OFlags::CLOEXEC,
            )
            .map_err(fail)?;
        let finished = slots::write(file.as_fd(), 1, &directory.boot, &free, directory.path())
            .and_then(|_| {
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(fail)
            })
            .and_then(|()| {
                let (keys, flags) = (directory.keys(), RenameFlags::NOREPLACE);
                match rustix::fs::renameat_with(keys, &*unfinished, keys, &*self.name, flags) {
                    Ok(()) => Ok(Ok(())),
                    Err(Errno::EXIST) => Ok(Err(InUse)),
                    Err(errno) => Err(fail(errno)),
                }
            });
        if matches!(finished, Ok(Ok(()))) {
            (self.file, self.sequence) = (Some(file), 1);
        } else {
            let _ = rustix::fs::unlinkat(directory.keys(), &*unfinished, AtFlags::empty());
        }
        finished
    }

    /// Deletes the file: nobody holds the key or waits for it.
    pub(super) fn delete(&self) -> Result<(), Error> {
        if self.file.is_none() {
            return Ok(());
        }
        rustix::fs::unlinkat(self.directory.keys(), &*self.name, AtFlags::empty())
            .map_err(|errno| of_write(self.directory.path(), errno))
    }
}

impl Drop for KeyFile<'_> {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // A forked child shares the open file, so closing it may not unlock it.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

/// Not an error after which a manager tries again by itself, since it names a pause: a crowd that
/// does keeps those who wait from being served.
fn full(key: &Key, places: usize) -> Error {
    Error::contended(format!(
        "the queue of this key is full: key={key} places={places}; try later, let fewer wait, or use a store with a server"
    ))
    .retry_in(FULL)
}

fn missing(key: &Key) -> Error {
    Error::unavailable(format!(
        "the file of a lock is missing: key={key}; try again"
    ))
}

fn damaged(directory: &Directory, key: &Key) -> Error {
    Error::corrupt(format!(
        "the file of a lock is not ours: key={key} directory={}; nothing was changed; if no process uses the lock, delete the file",
        directory.path().display()
    ))
}
