//! [`LogFile`]: a file that a thread of its own writes, so that no heartbeat waits for a disk.

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

use crate::model::error::Error;

/// How many lines wait for the disk.
const LINES: usize = 10_000;
/// How long the end waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Lines that it has no room for, or that cannot be written, as on a full disk, are dropped.
pub(super) struct LogFile {
    /// None at the end.
    lines: Option<SyncSender<Vec<u8>>>,
    /// Closed when the last line is written.
    ended: Receiver<Infallible>,
}

impl LogFile {
    /// Appends to the file at `path`.
    pub(super) fn open(path: &str) -> Result<Self, Error> {
        let refused = |why: io::Error| {
            let message = "the access log cannot be opened";
            Error::invalid(format!(
                "{message}: path={path}; check its folder and its permissions"
            ))
            .because(why)
        };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.map_err(refused)?;
        let (lines, to_write) = sync_channel::<Vec<u8>>(LINES);
        let (end, ended) = channel();
        let writer = std::thread::Builder::new().name("leasehold-access".to_owned());
        let started = writer.spawn(move || {
            for line in to_write {
                let _ = file.write_all(&line);
            }
            drop(end);
        });
        started.map_err(|why| Error::unavailable("no thread could be started").because(why))?;
        let lines = Some(lines);
        Ok(Self { lines, ended })
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.ended.recv_timeout(LAST_LINES);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_disk_that_hangs_delays_no_line() {
        // Nobody reads from this pipe.
        let (unread, pipe) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        let mut log = LogFile::open(&path).unwrap();
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            for _ in 0..2 * LINES {
                log.write_all(&[b'x'; 100]).unwrap();
            }
            done.send(log).unwrap();
        });
        let log = is_done.recv_timeout(Duration::from_secs(60));
        drop(unread);
        assert!(log.is_ok(), "a line waits for the disk");
    }
}
