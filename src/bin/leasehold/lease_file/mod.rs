//! The lease of a command as a small file, which programs in any language can check.
//!
//! `leasehold run` creates the file, names it in `LEASEHOLD_LEASE`, and writes its one record with one `pwrite` at each renewal.
//! `leasehold check` reads it. A check that finds the lease over marks the record, under `flock`; the tool reads the mark under
//! the same lock before it writes, and then treats the lease as lost. So a lapse that a check has reported is final (I2).

mod record;
mod stale;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use record::{Machine, Record, State, boot_now};
use rustix::fs::{FlockOperation, flock};

/// The environment variable that names the file.
pub(crate) const VARIABLE: &str = "LEASEHOLD_LEASE";

/// A record is one line of at most this many bytes.
const MOST: usize = 64 * 1024;

/// The file of one command. Removed when it is dropped; that of a tool that was killed, by the next tool.
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
    /// Another process has locked the file. Nobody waits for it here: the command has to be ended in time.
    NotYet,
    /// A check has reported that the lease is over.
    Lapsed,
}

impl LeaseFile {
    /// Creates the file in memory where the system has a place for that, for a lease that has `remaining` left.
    pub(crate) fn create(tokens: String, remaining: Duration) -> io::Result<Self> {
        let name = format!("{}{}-{}", stale::NAME, std::process::id(), boot_now());
        let folder = folder();
        let path = folder.join(name);
        // Never follows a link that somebody else has put there.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)?;
        stale::remove_stale(&folder, &file.metadata()?);
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
    pub(crate) fn write(&mut self, remaining: Duration) -> io::Result<Written> {
        // Read before the deadline is computed from it, so that the record never ends later than the lease.
        let deadline = boot_now().saturating_add(u64::try_from(remaining.as_nanos()).unwrap_or(0));
        let _lock = match Locked::at_once(&self.file) {
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(Written::NotYet),
            locked => locked?,
        };
        if self.written > 0 && read(&self.file)?.state == State::Lapsed {
            return Ok(Written::Lapsed);
        }
        if deadline > self.written {
            let record = Record {
                state: State::Live,
                deadline,
                tokens: self.tokens.clone(),
                machine: self.machine.clone(),
            };
            self.file.write_all_at(record.to_line().as_bytes(), 0)?;
            self.written = deadline;
        }
        Ok(Written::Yes)
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        // A process that still checks this lease finds no file: it is over.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The record of a lease file as it is now. If its lease is over it is marked, so that it stays over.
pub(crate) fn look(path: &Path) -> io::Result<Record> {
    let file = File::open(path)?;
    let record = read(&file)?;
    if record.is_over() && record.state == State::Live && record.machine == Machine::this()? {
        return mark(path);
    }
    Ok(record)
}

/// Marks a lease as over, unless it was renewed meanwhile.
fn mark(path: &Path) -> io::Result<Record> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let _lock = Locked::new(&file)?;
    let mut record = read(&file)?;
    if record.is_over() && record.state == State::Live {
        record.state = State::Lapsed;
        file.write_all_at(record.to_line().as_bytes(), 0)?;
    }
    Ok(record)
}

fn read(file: &File) -> io::Result<Record> {
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
        match Record::parse(&line) {
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
    fn new(file: &'a File) -> io::Result<Self> {
        flock(file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }

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
    let in_memory = [ours, Some(PathBuf::from("/dev/shm"))];
    // The command may change its directory, in which a relative path is another.
    let is_usable = |path: &PathBuf| path.is_absolute() && path.is_dir();
    let folder = in_memory.into_iter().flatten().find(is_usable);
    folder.unwrap_or_else(std::env::temp_dir)
}
