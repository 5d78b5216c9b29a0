//! [`AccessLogFile`]: the access log in a file of its own (feature `access-log-file`).

use std::fmt;
use std::path::Path;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, dispatcher};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::RollingFileAppender;
pub use tracing_appender::rolling::Rotation;

use super::access_log::AccessLog;
use super::event::Event;
use super::observer::Observer;
use crate::model::error::Error;

/// The lines of an [`AccessLog`], in a file of its own, whatever the process does with its other logs (feature
/// `access-log-file`).
///
/// A thread writes the file, so no heartbeat waits for a disk. Lines that it cannot keep up with, or cannot write, as on a full
/// disk, are dropped. Its last lines are written when the manager has ended. A file that others move or delete keeps its lines
/// until the next rotation.
///
/// ```
/// use leasehold::handler::{AccessLogFile, Rotation};
/// use leasehold::{LockManager, store::MemoryStore};
///
/// # let folder = std::env::temp_dir().join(format!("leasehold-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let log = AccessLogFile::create(folder.join("locks.log"), Rotation::NEVER)?;
/// let locks = LockManager::builder(MemoryStore::new()?)
///     .observer(log)
///     .build()?;
/// # drop(locks);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AccessLogFile {
    log: AccessLog,
    lines: Dispatch,
    /// Wants no line. While tracing knows of one subscriber only, it asks that of the thread which logs a line first whether the
    /// line is wanted, and keeps the answer: a thread without one would switch the lines of this file off.
    _other: Dispatch,
    _writer: WorkerGuard,
}

impl AccessLogFile {
    /// Appends to the file at `path`. With a rotation, the date is added to its name, and a new file is begun each day or hour.
    ///
    /// # Errors
    ///
    /// `Invalid` if the path names no file, or the file cannot be opened.
    pub fn create(path: impl AsRef<Path>, rotation: Rotation) -> Result<Self, Error> {
        let path = path.as_ref();
        let shown = path.display();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::invalid(format!(
                "the access log has no file name: path={shown}; name a file"
            )));
        };
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let file = RollingFileAppender::builder()
            .rotation(rotation)
            .filename_prefix(name)
            .build(folder.unwrap_or(Path::new(".")));
        let file = file.map_err(|error| {
            Error::invalid(format!(
                "the access log cannot be opened: path={shown}; check its folder and its permissions"
            ))
            .because(error)
        })?;
        let (writer, guard) = tracing_appender::non_blocking(file);
        let lines = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            .with_writer(writer)
            .finish();
        let other = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::OFF)
            .with_writer(std::io::sink)
            .finish();
        Ok(Self {
            log: AccessLog::new(),
            lines: Dispatch::new(lines),
            // After the first: it makes tracing ask again about every line that was logged before.
            _other: Dispatch::new(other),
            _writer: guard,
        })
    }
}

impl Observer for AccessLogFile {
    fn event(&self, event: &Event<'_>) {
        dispatcher::with_default(&self.lines, || self.log.event(event));
    }
}

impl fmt::Debug for AccessLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLogFile")
    }
}
