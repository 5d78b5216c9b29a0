//! [`CountingProcess`]: a counting process, which ends with the tool, and its [messages](Message).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use leasehold::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc::UnboundedSender;

use super::plan::CountPlan;
use super::round::Round;
use super::worker::{READY, WORKER};
use crate::exit::{Failure, code};
use crate::itself;

/// How often, and how far apart, we check that the processes have ended: two seconds in all.
const END_LOOKS: u32 = 200;
const END_PAUSE: Duration = Duration::from_millis(10);

/// A message of a process. The channel ends when every process has closed its end.
pub(super) enum ProcessMessage {
    /// It is connected, and waits for [`CountingProcess::go`].
    Ready,
    Round(Round),
    /// It sends no more messages.
    Ended,
}

pub(super) struct CountingProcess {
    child: Child,
    input: Option<ChildStdin>,
}

impl CountingProcess {
    pub(super) fn start(
        plan: &CountPlan,
        process: usize,
        reported: UnboundedSender<ProcessMessage>,
    ) -> Result<Self, Failure> {
        let failed = |why| Failure::system("a counting process could not be started", &why);
        let mut tool = itself::command().map_err(failed)?;
        let child = tool
            .arg(WORKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the tool, which ends them in any state.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut started = Self { child, input: None };
        started.input = started.child.stdin.take();
        // Not on the command line, where everybody could read the store's password.
        started.write(&plan.to_line(process))?;
        if let Some(lines) = started.child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    // The receiver goes only when the tool ends.
                    if line == READY {
                        let _ = reported.send(ProcessMessage::Ready);
                    } else if let Some(round) = Round::from_line(&line, process) {
                        let _ = reported.send(ProcessMessage::Round(round));
                    }
                }
                let _ = reported.send(ProcessMessage::Ended);
            });
        }
        Ok(started)
    }

    pub(super) fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().map(Pid::from_raw)
    }

    /// Lets it count.
    pub(super) fn go(&mut self) -> Result<(), Failure> {
        self.write(b"\n")
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Failure> {
        match self.input.as_mut().map(|input| input.write_all(line)) {
            Some(Ok(())) => Ok(()),
            _ => Err(ended_early()),
        }
    }

    /// Its exit, after its last message.
    pub(super) fn ended(&mut self) -> Result<(), Failure> {
        let status = (self.child.wait())
            .map_err(|why| Failure::system("a process could not be waited for", &why))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure {
            code: code::SOFTWARE,
            message: format!("a counting process failed: {status}"),
        })
    }
}

impl Drop for CountingProcess {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that failed prints the reason on stderr.
pub(super) fn ended_early() -> Failure {
    Failure {
        code: code::SOFTWARE,
        message: "a counting process ended before it could count".to_owned(),
    }
}

/// Lets the processes release what they hold and end. Those that do not are killed when they are
/// dropped.
pub(super) async fn end(processes: &mut [CountingProcess]) -> Result<(), Failure> {
    for process in &*processes {
        // One that is stopped could not act on it.
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            if let Some(id) = process.id() {
                // Fails if it has ended, which is what we want.
                let _ = kill(id, signal);
            }
        }
    }
    let clock = Clock::system()?;
    for _ in 0..END_LOOKS {
        let has_ended =
            |process: &mut CountingProcess| !matches!(process.child.try_wait(), Ok(None));
        if processes.iter_mut().all(has_ended) {
            break;
        }
        clock.sleep(END_PAUSE).await;
    }
    Ok(())
}
