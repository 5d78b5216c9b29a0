//! The signals that the tool gets.

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Failure;

/// SIGCHLD, and the signals that are forwarded to the command. SIGTSTP is caught so that it does not stop the tool, whose
/// lease would run out.
const OURS: [Signal; 10] = [
    Signal::SIGCHLD,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
];

/// The signals that end a tool that runs no command: it waits for its lock, or counts.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// The signals of a tool that runs a command.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::of(&OURS)
    }

    /// The signals that end the tool, so that it can clean up first.
    pub(crate) fn that_end_us() -> Result<Self, Failure> {
        Self::of(&ENDING)
    }

    fn of(which: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored();
        let streams = which
            .iter()
            .filter(|&&which| ignored & (1 << (which as u32 - 1)) == 0)
            .map(|&which| Ok((which, listen(SignalKind::from_raw(which as i32))?)))
            .collect::<Result<_, Failure>>()?;
        Ok(Self(streams))
    }

    /// The next signal of any kind. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (which, stream) in &mut self.0 {
                if stream.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*which);
                }
            }
            std::task::Poll::Pending
        })
        .await
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

/// The signals that our parent ignores for us, as `nohup` does, as a mask of bits: they stay ignored, for the command too.
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

fn listen(kind: SignalKind) -> Result<Stream, Failure> {
    signal(kind).map_err(|why| Failure::system("signals cannot be listened to", &why))
}
