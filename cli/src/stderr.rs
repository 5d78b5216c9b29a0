//! What the tool says on stderr.
//!
//! Its reader may stop reading, as a pager does, and then a write waits. From [`aside`] on a thread
//! writes: the tool must end its command, or a hold, with the lease, whoever reads what it says
//! about that.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// How many lines wait for the thread. More are dropped.
const MOST: usize = 1_000;

static QUEUE: OnceLock<SyncSender<Said>> = OnceLock::new();

enum Said {
    Line(Vec<u8>),
    /// Answer when everything before this was written.
    Flush(Sender<()>),
}

/// From now on a thread writes. If the system gives none, lines are written as before.
pub(crate) fn aside() {
    if QUEUE.get().is_some() {
        return;
    }
    let (queue, said) = sync_channel(MOST);
    let writer = std::thread::Builder::new().name("stderr".to_owned());
    let started = writer.spawn(move || {
        for said in said {
            match said {
                Said::Line(line) => write(&line),
                Said::Flush(done) => drop(done.send(())),
            }
        }
    });
    if started.is_ok() {
        let _ = QUEUE.set(queue);
    }
}

/// Says a line. One that cannot be written changes nothing.
pub(crate) fn say(line: &[u8]) {
    match QUEUE.get() {
        Some(queue) => drop(queue.try_send(Said::Line(line.to_vec()))),
        None => write(line),
    }
}

/// Waits until everything was written: before the process ends. With a limit, what nobody reads
/// until then is lost.
pub(crate) fn flush(limit: Option<Duration>) {
    let Some(queue) = QUEUE.get() else { return };
    let (done, is_done) = channel();
    let flush = Said::Flush(done);
    // An error says that the thread has ended, or that its queue is full.
    match limit {
        Some(limit) => {
            let asked = queue.try_send(flush).is_ok();
            let _ = asked && is_done.recv_timeout(limit).is_ok();
        }
        None => {
            let asked = queue.send(flush).is_ok();
            let _ = asked && is_done.recv().is_ok();
        }
    }
}

fn write(line: &[u8]) {
    let _ = io::stderr().lock().write_all(line);
}

/// Takes the lines of the log.
#[derive(Debug)]
pub(crate) struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
