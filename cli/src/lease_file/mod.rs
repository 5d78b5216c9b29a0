//! The lease of a command as a small file, which programs in any language can check.
//!
//! `leasehold run` creates the file, names it in `LEASEHOLD_LEASE`, and writes its one record with
//! one `pwrite` at each renewal. `leasehold check` reads it. A check that finds the lease over
//! marks the record, under `flock`; the tool reads the mark under the same lock before it writes,
//! and then treats the lease as lost. So a lapse that a check has reported is final (I2).
//!
//! A file that somebody has deleted is made again. A check that finds none waits for that; then it
//! puts a record there that says that the lease is over, and the tool treats a file that is not its
//! own as a mark.
//!
//! A reader may keep a mapping of the file. So the tool marks a file before it leaves it: at the
//! end, and when it was made again. `src/docs/lease_file.md` is the page for readers.

mod record;
mod stale;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use record::{LeaseRecord, LeaseState, Machine, boot_now};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

/// The environment variable that names the file.
pub(crate) const VARIABLE: &str = "LEASEHOLD_LEASE";

/// A record is one line of at most this many bytes.
const MOST: usize = 64 * 1024;

/// How often the tool checks that its file is still there.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// The pause between two reads of a check that has to wait, and how many times it reads: for longer
/// than some [`LOOK`]s.
const CHECK_PAUSE: Duration = Duration::from_millis(10);
const CHECKS: u32 = 200;

/// The file of one command. Removed when it is dropped; that of a tool that was killed, by the next
/// tool.
#[derive(Debug)]
pub(crate) struct LeaseFile {
    path: PathBuf,
    file: File,
    tokens: String,
    machine: Machine,
    /// The deadline of the last record.
    written: u64,
}

/// What a write has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    Yes,
    /// Another process has locked the file. Nobody waits for it here: the command has to be ended
    /// in time.
    NotYet,
    /// A check has reported that the lease is over, or reads a file that is not ours.
    Lapsed,
}

impl LeaseFile {
    /// Creates the file in memory where the system has a place for that, for a lease that has
    /// `remaining` left.
    pub(crate) fn create(tokens: String, remaining: impl FnOnce() -> Duration) -> io::Result<Self> {
        Self::create_in(&folder(), tokens, remaining)
    }

    fn create_in(
        folder: &Path,
        tokens: String,
        remaining: impl FnOnce() -> Duration,
    ) -> io::Result<Self> {
        let path = folder.join(name());
        let file = make(&path)?;
        stale::remove_stale(folder, &file.metadata()?);
        let mut lease_file = Self {
            path,
            file,
            tokens,
            machine: Machine::this()?,
            written: 0,
        };
        lease_file.write(remaining)?;
        Ok(lease_file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is left of the lease now, if that moves the deadline forward.
    pub(crate) fn write(&mut self, remaining: impl FnOnce() -> Duration) -> io::Result<Written> {
        // The clock first: however long we are stopped between the two, the record never ends later
        // than the lease.
        let now = boot_now();
        let deadline = now.saturating_add(u64::try_from(remaining().as_nanos()).unwrap_or(0));
        let lock = match Locked::at_once(&self.file) {
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(Written::NotYet),
            locked => locked?,
        };
        if self.written > 0 && read(&self.file)?.state == LeaseState::Lapsed {
            return Ok(Written::Lapsed);
        }
        if !is_at(&self.file, &self.path)? {
            // Under the lock of the old one, so that a check that marks it sees that there is
            // another.
            let again = match make_again(&self.path, &self.record(LeaseState::Live, deadline)) {
                Err(why) if why.kind() == ErrorKind::AlreadyExists => return Ok(Written::Lapsed),
                made => made?,
            };
            // Whoever has mapped it opens the path again.
            self.end();
            drop(lock);
            self.file = again;
            self.written = deadline;
            return Ok(Written::Yes);
        }
        if deadline > self.written {
            let record = self.record(LeaseState::Live, deadline);
            self.file.write_all_at(record.to_line().as_bytes(), 0)?;
            self.written = deadline;
        }
        Ok(Written::Yes)
    }

    /// Marks the record for those that have mapped it, who see neither a deletion nor a new file.
    /// Before the command is killed, and before the lock is free.
    pub(crate) fn end(&self) {
        // Without its lock: whoever has that writes a mark too. If it fails, the deadline remains.
        let record = self.record(LeaseState::Lapsed, self.written);
        let _ = self.file.write_all_at(record.to_line().as_bytes(), 0);
    }

    fn record(&self, state: LeaseState, deadline: u64) -> LeaseRecord {
        LeaseRecord {
            state,
            deadline,
            tokens: self.tokens.clone(),
            machine: self.machine.clone(),
        }
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        self.end();
        // A process that still checks this lease finds no file: it is over.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The record of a lease file as it is now. If its lease is over it is marked, so that it stays
/// over.
///
/// `NotFound` means that the tool has ended.
pub(crate) fn look(path: &Path) -> io::Result<LeaseRecord> {
    for _ in 0..CHECKS {
        match look_once(path) {
            // Deleted, and not by its tool: that makes it again.
            Err(why) if why.kind() == ErrorKind::NotFound && stale::may_have_its_tool(path) => {}
            // It was made again before it was marked, or another process has locked it.
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            found => return found,
        }
        pause();
    }
    // The tool is stopped. It must not make it again after we have said that the lease is over.
    let record = LeaseRecord {
        state: LeaseState::Lapsed,
        deadline: 0,
        tokens: "-".to_owned(),
        machine: Machine::this()?,
    };
    match make_again(path, &record) {
        Ok(_) => Ok(record),
        Err(why) if why.kind() == ErrorKind::AlreadyExists => look_once(path),
        Err(why) => Err(why),
    }
}

fn look_once(path: &Path) -> io::Result<LeaseRecord> {
    judge(&open(path, OpenOptions::new().read(true))?, path)
}

fn judge(file: &File, path: &Path) -> io::Result<LeaseRecord> {
    let record = read(file)?;
    if record.is_over() && record.state == LeaseState::Live && record.machine == Machine::this()? {
        return mark(path);
    }
    // The tool marks a file that it has left, and the one that it has made again is the one to
    // read.
    if record.state == LeaseState::Lapsed && !is_at(file, path)? {
        return Err(ErrorKind::WouldBlock.into());
    }
    Ok(record)
}

/// No clock of ours moves the process that is waited for.
#[allow(clippy::disallowed_methods)]
fn pause() {
    std::thread::sleep(CHECK_PAUSE);
}

/// Makes the file. It never follows a link that somebody else has put there.
fn make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    options.mode(0o644).open(path)
}

/// Makes a file that was deleted, with its record: nobody reads it without.
fn make_again(path: &Path, record: &LeaseRecord) -> io::Result<File> {
    let draft = path.with_file_name(name());
    let file = make(&draft)?;
    let written = file.write_all_at(record.to_line().as_bytes(), 0);
    let linked = written.and_then(|()| std::fs::hard_link(&draft, path));
    std::fs::remove_file(&draft)?;
    linked.map(|()| file)
}

/// A name that no other file has.
fn name() -> String {
    let (tool, now) = (std::process::id(), boot_now());
    format!("{}{tool}-{now}-{}", stale::NAME, record::namespace("pid"))
}

/// Opens a file that exists. Of another kind, such as a pipe, it neither waits for the other end
/// nor reads. When the tool has ended, every user of the machine may put a file there: it has to be
/// ours or root's.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let at_once = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(at_once.bits() as i32).open(path)?;
    let found = file.metadata()?;
    let why = if !found.is_file() {
        "it is no file"
    } else if found.uid() != 0 && found.uid() != geteuid().as_raw() {
        "it belongs to another user"
    } else {
        return Ok(file);
    };
    Err(io::Error::new(ErrorKind::InvalidData, why))
}

/// Whether this file, and no other and none, has the name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(there) => {
            let ours = file.metadata()?;
            Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        }
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Marks a lease as over, unless it was renewed meanwhile. `WouldBlock` if it has to be tried
/// again.
fn mark(path: &Path) -> io::Result<LeaseRecord> {
    let file = open(path, OpenOptions::new().read(true).write(true))?;
    let _lock = Locked::at_once(&file)?;
    if !is_at(&file, path)? {
        return Err(ErrorKind::WouldBlock.into());
    }
    let mut record = read(&file)?;
    if record.is_over() && record.state == LeaseState::Live {
        record.state = LeaseState::Lapsed;
        file.write_all_at(record.to_line().as_bytes(), 0)?;
    }
    Ok(record)
}

fn read(file: &File) -> io::Result<LeaseRecord> {
    // A write is one call, but a reader may see a part of it.
    const TRIES: u32 = 3;
    let mut tries = 0;
    loop {
        let mut line = vec![0; 512];
        let mut length = file.read_at(&mut line, 0)?;
        while length == line.len() && length < MOST {
            line.resize(MOST, 0);
            length = file.read_at(&mut line, 0)?;
        }
        let line = String::from_utf8_lossy(&line[..length]);
        tries += 1;
        match LeaseRecord::parse(&line) {
            Some(record) => return Ok(record),
            None if tries < TRIES => {}
            None => {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "it holds no record of a lease",
                ));
            }
        }
    }
}

/// Holds the file's lock for as long as it lives.
struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    fn at_once(file: &'a File) -> io::Result<Self> {
        flock(file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The lock goes with the file at the latest.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

fn folder() -> PathBuf {
    let ours = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // The system removes such a one when its user logs out, and the command may run on.
    let ours = ours.filter(|path| !path.starts_with("/run/user"));
    let in_memory = [ours, Some(PathBuf::from("/dev/shm"))];
    // The command may change its directory, in which a relative path is another.
    let is_usable = |path: &PathBuf| path.is_absolute() && path.is_dir();
    let folder = in_memory.into_iter().flatten().find(is_usable);
    folder.unwrap_or_else(std::env::temp_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease file in a folder of the test's own.
    fn lease_file(folder: &str, remaining: impl FnOnce() -> Duration) -> LeaseFile {
        let folder = format!("leasehold-unit-{folder}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        LeaseFile::create_in(&folder, "1".to_owned(), remaining).unwrap()
    }

    fn state(file: &File) -> LeaseState {
        read(file).unwrap().state
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_record_ends_no_later_than_the_lease_however_late_it_is_written() {
        let mut read_at = 0;
        let latest = |read_at: u64| read_at + u64::try_from(HOUR.as_nanos()).unwrap();
        let mut lease_file = lease_file("deadline", || {
            read_at = boot_now();
            HOUR
        });
        assert!(read(&lease_file.file).unwrap().deadline <= latest(read_at));
        let remaining = || {
            read_at = boot_now();
            HOUR
        };
        assert_eq!(lease_file.write(remaining).unwrap(), Written::Yes);
        assert!(read(&lease_file.file).unwrap().deadline <= latest(read_at));
    }

    #[test]
    fn whoever_has_opened_a_file_sees_that_its_tool_has_ended() {
        let lease_file = lease_file("end", || HOUR);
        let mapped = File::open(&lease_file.path).unwrap();
        assert_eq!(state(&mapped), LeaseState::Live);
        drop(lease_file);
        assert_eq!(state(&mapped), LeaseState::Lapsed);
    }

    #[test]
    fn whoever_has_opened_a_file_that_was_made_again_is_sent_to_the_new_one() {
        let mut lease_file = lease_file("again", || HOUR);
        let mapped = File::open(&lease_file.path).unwrap();
        std::fs::remove_file(&lease_file.path).unwrap();
        assert_eq!(lease_file.write(|| HOUR).unwrap(), Written::Yes);
        assert_eq!(state(&mapped), LeaseState::Lapsed);
        // A check that had opened it does not report that the lease is over.
        let judged = judge(&mapped, &lease_file.path).map_err(|why| why.kind());
        assert_eq!(judged, Err(ErrorKind::WouldBlock));
        assert_eq!(look(&lease_file.path).unwrap().state, LeaseState::Live);
        assert_eq!(lease_file.write(|| HOUR).unwrap(), Written::Yes);
    }
}
