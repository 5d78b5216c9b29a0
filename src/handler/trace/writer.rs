//! The thread that writes a trace.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::picture::Picture;
use super::record::Record;
use crate::clock::Clock;

/// How long the thread rests when nothing is queued. It is not woken for an event, so an event costs its caller no system call.
const PAUSE: Duration = Duration::from_millis(50);

/// How many bytes are written at once.
const BATCH: usize = 1 << 16;

/// For how many rests after a renewal the leases are looked at: the event comes before the deadlines move.
const LOOKS: u8 = 2;

pub(super) enum Message {
    Happened(Record),
    /// Write what is queued, and answer.
    Flush(Sender<()>),
    /// The same, and end the trace.
    Finish(Sender<()>),
}

/// What the thread shares with those that report events.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Events that had no place in the queue, or were not written.
    pub(super) dropped: AtomicU64,
    /// Why nothing more is written.
    pub(super) failed: OnceLock<io::Error>,
}

pub(super) struct Writer {
    pub(super) inbox: Receiver<Message>,
    pub(super) out: Box<dyn Write + Send>,
    pub(super) clock: Clock,
    pub(super) shared: Arc<Shared>,
    /// Whether the end of the array is written: not if others write to the same file.
    pub(super) closes: bool,
    /// Events since the last write.
    pub(super) unwritten: u64,
}

impl Writer {
    pub(super) fn run(mut self) {
        let (mut picture, mut looks, mut known_dropped) = (Picture::new(), 0, 0);
        loop {
            match self.inbox.try_recv() {
                Ok(Message::Happened(record)) => {
                    if record.is_renewal() {
                        looks = LOOKS;
                    }
                    picture.draw(record);
                    self.unwritten += 1;
                    if picture.lines().len() < BATCH {
                        continue;
                    }
                }
                Ok(Message::Flush(answer)) => {
                    picture.look(self.clock.boot());
                    self.write(&mut picture, &mut known_dropped);
                    // Whoever asked may have gone.
                    let _ = answer.send(());
                }
                Ok(Message::Finish(answer)) => {
                    picture.look(self.clock.boot());
                    self.end(&mut picture, &mut known_dropped);
                    self.close();
                    let _ = answer.send(());
                    return;
                }
                Err(TryRecvError::Disconnected) => {
                    return self.end(&mut picture, &mut known_dropped);
                }
                Err(TryRecvError::Empty) => {
                    if looks > 0 {
                        looks -= 1;
                        picture.look(self.clock.boot());
                    }
                    self.write(&mut picture, &mut known_dropped);
                    thread::park_timeout(PAUSE);
                    continue;
                }
            }
            self.write(&mut picture, &mut known_dropped);
        }
    }

    /// What comes later is refused, so its caller counts it; what came meanwhile is counted here.
    fn close(self) {
        let late = self.inbox.try_iter();
        let late = late.filter(|message| matches!(message, Message::Happened(_)));
        let late = late.count() as u64;
        self.shared.dropped.fetch_add(late, Ordering::Relaxed);
    }

    /// Whole lines in one call, so that processes which append to one file do not mix theirs.
    fn write(&mut self, picture: &mut Picture, known_dropped: &mut u64) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped != *known_dropped {
            *known_dropped = dropped;
            picture.mark(self.clock.boot(), &format!("{dropped} events were dropped"));
        }
        let lines = picture.lines();
        if !lines.is_empty() && self.shared.failed.get().is_none() {
            let written = self.out.write_all(lines).and_then(|()| self.out.flush());
            if let Err(error) = written {
                tracing::error!(target: "leasehold::handler", %error, "the trace cannot be written; it ends here");
                // Set once: this is the only thread that sets it.
                let _ = self.shared.failed.set(error);
            }
        }
        lines.clear();
        let unwritten = std::mem::take(&mut self.unwritten);
        if self.shared.failed.get().is_some() {
            self.shared.dropped.fetch_add(unwritten, Ordering::Relaxed);
        }
    }

    fn end(&mut self, picture: &mut Picture, known_dropped: &mut u64) {
        self.write(picture, known_dropped);
        if self.closes {
            picture.mark(self.clock.boot(), "the trace ends");
            let lines = picture.lines();
            // The last line of an array has no comma.
            lines.truncate(lines.len() - ",\n".len());
            lines.extend_from_slice(b"\n]\n");
            self.write(picture, known_dropped);
        }
    }
}
