//! The signals that the tool gets.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Failure;

/// SIGCHLD, and the signals that are forwarded to the command. SIGTSTP is caught so that it does
/// not stop the tool, whose lease would run out.
const OURS: [Signal; 6] = [
    Signal::SIGCHLD,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
];

/// The signals that end a tool that runs no command: it waits for its lock, or counts. They are
/// forwarded to a command too.
///
/// SIGSYS is not among them. By it seccomp reports a system call that it refused; after a handler
/// that returns, such a call looks like one that succeeded, also one that reads a clock.
const ENDING: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    #[cfg(target_os = "linux")]
    Signal::SIGIO,
    #[cfg(target_os = "linux")]
    Signal::SIGPWR,
];

/// The terminal stops a program in its background that reads, or writes under `stty tostop`. The
/// tool must not stop, because its lease would run out: a blocked read fails, and a blocked write
/// goes on. The command begins with an empty mask.
const BLOCKED: [Signal; 2] = [Signal::SIGTTIN, Signal::SIGTTOU];

#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    /// The last signal that ends a tool and was not passed on, set by its handler: the runtime that
    /// reads the signals for all others may be that of the lock manager's thread, and need not have
    /// passed it on.
    arrived: Arc<AtomicUsize>,
}

impl Signals {
    /// The signals of a tool that runs a command.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::of(OURS.iter().chain(ENDING))
    }

    /// The signals that end the tool, so that it can clean up first.
    pub(crate) fn that_end_us() -> Result<Self, Failure> {
        Self::of(ENDING)
    }

    fn of<'a>(which: impl IntoIterator<Item = &'a Signal>) -> Result<Self, Failure> {
        let ignored = ignored();
        let arrived = Arc::default();
        let streams = which
            .into_iter()
            .filter(|&&which| ignored & (1 << (which as u32 - 1)) == 0)
            .map(|&which| {
                if ENDING.contains(&which) {
                    note(which, &arrived)?;
                }
                Ok((which, listen(SignalKind::from_raw(which as i32))?))
            })
            .collect::<Result<_, Failure>>()?;
        // A file that would be larger than we may write (`ulimit -f`): the write fails, and that is
        // reported. A handler, since a command would inherit a signal that is ignored.
        if ignored & (1 << (Signal::SIGXFSZ as u32 - 1)) == 0 {
            (signal_hook::flag::register(Signal::SIGXFSZ as i32, Arc::default()))
                .map_err(|why| Failure::system("signals cannot be listened to", &why))?;
        }
        // Whatever our parent has blocked: without SIGCHLD no end of a command would be seen. Only
        // now, so that a signal that waited is one that we listen to.
        (SigSet::from_iter(BLOCKED).thread_set_mask())
            .map_err(|why| Failure::system("the signal mask cannot be set", &why))?;
        Ok(Self { streams, arrived })
    }

    /// The next signal of any kind. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (which, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    // It is passed on. Another one that came since stays noted.
                    let noted = *which as usize;
                    let _ = (self.arrived).compare_exchange(
                        noted,
                        0,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                    return Poll::Ready(*which);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The signal that ends a tool that only waits, if one has arrived. Checked before a command is
    /// started: no runtime may have read its signals since the lock was acquired.
    pub(crate) async fn ended(&mut self) -> Option<Signal> {
        // On a runtime of one thread this reads all that has arrived.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            signal = self.ending() => return Some(signal),
            () = std::future::ready(()) => {}
        }
        let arrived = self.arrived.load(Ordering::SeqCst);
        (ENDING.iter().copied()).find(|&which| which as usize == arrived)
    }

    /// The next signal that ends a tool that only waits. Cancel safe.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }
}

/// The signals that our parent ignores for us, as `nohup` does, as a mask of bits: they stay
/// ignored, for the command too.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The command's end is never ignored: we wait for it.
    mask.unwrap_or(0) & !(1 << (Signal::SIGCHLD as u32 - 1))
}

#[cfg(not(target_os = "linux"))]
fn ignored() -> u64 {
    0
}

/// Its handler sets the number of the signal.
fn note(which: Signal, arrived: &Arc<AtomicUsize>) -> Result<(), Failure> {
    let (number, arrived) = (which as usize, Arc::clone(arrived));
    signal_hook::flag::register_usize(which as i32, arrived, number)
        .map(drop)
        .map_err(|why| Failure::system("signals cannot be listened to", &why))
}

fn listen(kind: SignalKind) -> Result<Stream, Failure> {
    signal(kind).map_err(|why| Failure::system("signals cannot be listened to", &why))
}
