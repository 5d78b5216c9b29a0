//! [`Trace`]: what a manager did over time, as a picture.

mod line;
mod picture;
mod record;
mod writer;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::Thread;

use super::event::Event;
use super::observer::Observer;
use crate::clock::Clock;
use crate::model::error::Error;
use record::{Record, What};
use writer::{Message, Shared, Writer};

/// How many events wait for the writer at most: 160,000 a second if it comes ten times a second.
const QUEUE: usize = 16_384;

/// An observer that writes a trace: what a manager did over time, in the JSON format of Chrome's traces. Open the file in
/// [Perfetto](https://ui.perfetto.dev), or in `chrome://tracing`.
///
/// | track | slices and marks |
/// |---|---|
/// | the key | each hold, with its token: how it ended, its release; marks `at risk`, `no longer at risk`, `lost` |
/// | `<key> runs` | each guarded run: how it ended, and how much of the lease was left at its commit; marks `check`, `undone` |
/// | `<key> calls` | each call for the lock: how long it waited, and its answer |
/// | `<key> left ms` | what was left of the lease after each renewal |
/// | `<key> callers waiting` | how many callers of this process waited |
/// | `renewals` | each call of the store to renew: its round trip, its answers, how late the timer was |
/// | the process | steps that were sent, debts, dropped events |
///
/// Times are those of the machine's boot clock, in microseconds, so traces of several processes of one machine fit together. A hold
/// at risk is seen by a look at the leases shortly after a renewal: its mark may be some 100 ms late, or missing if it was short.
///
/// An event is queued, and a thread writes it, so no lock waits for a disk. **If the thread cannot keep up, events are dropped and
/// counted** ([`dropped`](Self::dropped), and a mark in the trace); a slice whose end was dropped stays open. The file is valid at any
/// time, also after a crash, except that the end of its array is missing, which the format allows. It grows until the process
/// ends: a trace is for minutes, not for days. It contains keys, labels, and the descriptions of steps.
///
/// ```
/// use leasehold::handler::Trace;
/// use leasehold::{LockManager, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # let path = std::env::temp_dir().join(format!("trace-doc-{}.json", std::process::id()));
/// let trace = Trace::create(&path)?;
/// let locks = LockManager::builder(MemoryStore::new()?)
///     .observer(trace.clone())
///     .build()?;
/// let guard = locks.lock("orders/7").acquire().await?;
/// guard.release().await?;
/// locks.shutdown().await;
/// assert_eq!(trace.finish()?, 0, "events were dropped");
/// # std::fs::remove_file(path).expect("it was written");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    queue: SyncSender<Message>,
    clock: Clock,
    shared: Arc<Shared>,
    thread: Thread,
}

impl Trace {
    /// A trace in a new file at `path`; a file that exists is overwritten.
    ///
    /// # Errors
    ///
    /// `Invalid` if the file cannot be opened, `Unavailable` if it cannot be written, or if the machine gives no thread or no clock.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::create(path).and_then(|_| appended(path));
        Self::start(Box::new(opened(file, path)?), Clock::system()?, true)
    }

    /// A trace at the end of the file at `path`, which several processes may write at once: each adds whole lines. The end of the
    /// array is left to the process that [created](Self::create) the file, if there is one.
    ///
    /// # Errors
    ///
    /// `Invalid` if the file cannot be opened or written, `Unavailable` if the machine gives no thread or no clock.
    pub fn append(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut file = opened(appended(path), path)?;
        opened(begin_once(&mut file), path)?;
        Self::spawn(Box::new(file), Clock::system()?, false)
    }

    /// A trace that goes to `writer`, by the time of `clock`: that of the manager.
    ///
    /// # Errors
    ///
    /// `Unavailable` if nothing can be written, or the machine gives no thread.
    pub fn with_clock(
        writer: impl Write + Send + 'static,
        clock: impl Into<Clock>,
    ) -> Result<Self, Error> {
        Self::start(Box::new(writer), clock.into(), true)
    }

    fn start(mut out: Box<dyn Write + Send>, clock: Clock, closes: bool) -> Result<Self, Error> {
        let begun = out.write_all(BEGIN).and_then(|()| out.flush());
        begun.map_err(|error| failed(&error))?;
        Self::spawn(out, clock, closes)
    }

    fn spawn(out: Box<dyn Write + Send>, clock: Clock, closes: bool) -> Result<Self, Error> {
        let (queue, inbox) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            inbox,
            out,
            clock: clock.clone(),
            shared: Arc::clone(&shared),
            closes,
            unwritten: 0,
        };
        let thread = std::thread::Builder::new().name("leasehold-trace".to_owned());
        let thread = thread.spawn(move || writer.run()).map_err(|error| {
            Error::unavailable("the trace has no thread; raise the limit of threads").because(error)
        })?;
        Ok(Self(Arc::new(Inner {
            queue,
            clock,
            shared,
            thread: thread.thread().clone(),
        })))
    }

    /// How many events were dropped, because the writer could not keep up, has failed, or the trace was finished.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.shared.dropped.load(Ordering::Relaxed)
    }

    /// Writes what has happened until now. It blocks until that is done: not for async code.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the writer has failed, or the trace was finished.
    pub fn flush(&self) -> Result<(), Error> {
        self.ask(Message::Flush)
    }

    /// Ends the trace: writes what has happened until now, and the end of the array. Returns how many events were
    /// [dropped](Self::dropped). It blocks until that is done: call it at the end of a program. What happens later is dropped.
    ///
    /// Without this call the trace ends by itself when its managers and every clone of it have gone, if the process still lives then.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the writer has failed, or the trace was finished before.
    pub fn finish(&self) -> Result<u64, Error> {
        self.ask(Message::Finish)?;
        Ok(self.dropped())
    }

    fn ask(&self, message: fn(Sender<()>) -> Message) -> Result<(), Error> {
        let (answer, answered) = channel();
        let asked = self.0.queue.send(message(answer));
        self.0.thread.unpark();
        let is_done = asked.is_ok() && answered.recv().is_ok();
        match self.0.shared.failed.get() {
            Some(error) => Err(failed(error)),
            None if is_done => Ok(()),
            None => Err(Error::unavailable(
                "the trace has ended; finish it once, after its last event",
            )),
        }
    }
}

impl Observer for Trace {
    fn event(&self, event: &Event<'_>) {
        let Inner {
            queue,
            clock,
            shared,
            ..
        } = &*self.0;
        let Some(what) = What::of(event) else { return };
        let at = clock.boot();
        // Never waits: neither for the writer nor for its wake-up.
        let queued = queue.try_send(Message::Happened(Record { at, what }));
        if queued.is_err() {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

const BEGIN: &[u8] = b"[\n";

fn appended(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Begins the array, unless the file has text. One process at a time, where files can be locked.
fn begin_once(file: &mut File) -> io::Result<()> {
    #[cfg(unix)]
    use rustix::fs::{FlockOperation, flock};
    #[cfg(unix)]
    rustix::io::retry_on_intr(|| flock(&*file, FlockOperation::LockExclusive))?;
    let begun = match file.metadata()?.len() {
        0 => file.write_all(BEGIN),
        _ => Ok(()),
    };
    #[cfg(unix)]
    flock(&*file, FlockOperation::Unlock)?;
    begun
}

fn opened<T>(opened: io::Result<T>, path: &Path) -> Result<T, Error> {
    opened.map_err(|error| {
        let shown = path.display();
        Error::invalid(format!(
            "the trace cannot be opened: path={shown}; look at its folder and its rights"
        ))
        .because(error)
    })
}

fn failed(error: &io::Error) -> Error {
    Error::unavailable(format!(
        "the trace cannot be written: {error}; look at what it is written to"
    ))
}
