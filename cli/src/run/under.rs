//! One command under one hold, from its start to the release.

use std::future::pending;
use std::io::ErrorKind;
use std::pin::pin;
use std::time::Duration;

use leasehold::clock::Clock;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::Notify;

use super::child::{Child, End, NotAllowed, asks_to_end};
use super::countdown::{Countdown, NextStep};
use super::descendants;
use super::held::{HoldOfRun, release};
use crate::args::CommandArgs;
use crate::exit::{Failure, Status};
use crate::lease_file::{LOOK, LeaseFile, Written};
use crate::output::{Output, millis, span};
use crate::signals::Signals;
use crate::stderr;

/// The pause between two checks of a lease that waits for its renewal, and between two tries to
/// write its file.
const RENEWAL_CHECK: Duration = Duration::from_millis(20);
/// The same before the command has begun: the next holder waits for it.
const ROOM_CHECK: Duration = Duration::from_millis(2);

/// How a command under a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// By itself, while the lease was live; or by a signal before it was started.
    ByItself(Status),
    /// Because its leader was asked to leave, while the lease was live.
    Left(Status),
    /// With its lease, or after it.
    Lost {
        /// A signal that asked us to end meanwhile.
        asked: Option<Signal>,
    },
}

pub(super) async fn run_under(
    held: HoldOfRun<'_>,
    command: &CommandArgs,
    countdown: Countdown,
    signals: &mut Signals,
    renewals: &Notify,
    output: Output,
) -> Result<Ended, Failure> {
    let (key, token) = held.to_json();
    output.quiet_event(&json!({ "event": "acquired", "key": key, "token": token }));
    let ended = start_and_watch(command, &held, countdown, signals, renewals, output).await;
    release(held, output).await;
    ended
}

async fn start_and_watch(
    command: &CommandArgs,
    held: &HoldOfRun<'_>,
    countdown: Countdown,
    signals: &mut Signals,
    renewals: &Notify,
    output: Output,
) -> Result<Ended, Failure> {
    let clock = Clock::system()?;
    if let Some(ended) = wait_for_room(held, countdown, &clock, signals, output).await {
        return Ok(ended);
    }
    if let Some(signal) = signals.ended().await {
        return Ok(Ended::ByItself(Status::Signal(signal)));
    }
    let lease_file = lease_file(held, output);
    stderr::aside();
    let mut watched = Watched {
        child: Child::spawn(
            &command.command,
            held,
            lease_file.as_ref().map(LeaseFile::path),
            output,
        )?,
        held,
        lease_file,
        countdown,
        output,
        waits_for_children: command.wait_children,
        asked: None,
        is_leaving: false,
    };
    let ended = watched.until_it_ends(&clock, signals, renewals).await;
    if ended.is_err() {
        // Nothing watches over it from here on.
        watched.put_down(signals).await;
    }
    ended
}

/// The file for `leasehold check`. Where it cannot be created the command runs without one, and
/// this is reported.
fn lease_file(held: &HoldOfRun<'_>, output: Output) -> Option<LeaseFile> {
    match LeaseFile::create(held.tokens(), || held.remaining()) {
        Ok(file) => Some(file),
        Err(why) => {
            let advice = match why.kind() {
                ErrorKind::FileTooLarge => "raise the limit of a file's size (ulimit -f)",
                _ => "set XDG_RUNTIME_DIR to a folder that can be written",
            };
            output.event(
                format!(
                    "the lease file could not be created, and leasehold check does not work in the command: {why}; {advice}"
                ),
                &json!({ "event": "no_lease_file", "why": why.to_string() }),
            );
            None
        }
    }
}

/// Waits until enough is left of the lease to start a command under it. After a slow acquire that
/// is the next renewal.
async fn wait_for_room(
    held: &HoldOfRun<'_>,
    countdown: Countdown,
    clock: &Clock,
    signals: &mut Signals,
    output: Output,
) -> Option<Ended> {
    tokio::select! {
        biased;
        signal = signals.ending() => Some(Ended::ByItself(Status::Signal(signal))),
        () = until_there_is_room(|| held.remaining(), countdown, clock) => None,
        _ = held.lost() => {
            output.event(
                "the lease was lost before the command was started",
                &json!({ "event": "lost", "command": null }),
            );
            Some(Ended::Lost { asked: None })
        }
    }
}

async fn until_there_is_room(
    remaining: impl Fn() -> Duration,
    countdown: Countdown,
    clock: &Clock,
) {
    while !countdown.may_start(remaining()) {
        clock.sleep(ROOM_CHECK).await;
    }
}

/// A command that runs, and what is known of it.
struct Watched<'a> {
    child: Child,
    held: &'a HoldOfRun<'a>,
    lease_file: Option<LeaseFile>,
    countdown: Countdown,
    output: Output,
    waits_for_children: bool,
    /// The last signal that asked us to end, and was forwarded.
    asked: Option<Signal>,
    /// The leader was asked to leave.
    is_leaving: bool,
}

impl Watched<'_> {
    async fn until_it_ends(
        &mut self,
        clock: &Clock,
        signals: &mut Signals,
        renewals: &Notify,
    ) -> Result<Ended, Failure> {
        let mut warned_at = None;
        let mut is_killed = false;
        let held = self.held;
        let mut asked_to_leave = pin!(held.asked_to_leave());
        loop {
            let published = if is_killed {
                Written::Yes
            } else {
                self.publish()?
            };
            if published == Written::Lapsed {
                is_killed = true;
                if let Some(ended) = self.kill() {
                    return Ok(ended);
                }
            }
            let warned_for = warned_at.map(|warned_at| clock.stamp().since(&warned_at));
            let pause = match self.countdown.step(self.held.remaining(), warned_for) {
                _ if is_killed => None,
                NextStep::Wait(pause) if published == Written::NotYet => {
                    Some(pause.min(RENEWAL_CHECK))
                }
                NextStep::Wait(pause) => Some(pause.min(LOOK)),
                NextStep::Terminate => {
                    warned_at = Some(clock.stamp());
                    self.report_at_risk();
                    self.terminate();
                    continue;
                }
                NextStep::Kill => {
                    is_killed = true;
                    if let Some(ended) = self.kill() {
                        return Ok(ended);
                    }
                    None
                }
            };
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::SIGCHLD => {
                        self.child.look()?;
                        self.child.keep_going();
                        if let Some(end) = self.child.end(self.waits_for_children && !is_killed) {
                            let is_warned = warned_at.is_some() || is_killed;
                            let is_lost = (is_warned && !self.is_leaving) || !self.held.is_live();
                            return Ok(self.leave(end, is_lost));
                        }
                    }
                    signal => self.forward(signal),
                },
                () = &mut asked_to_leave, if !self.is_leaving => {
                    self.is_leaving = true;
                    warned_at = warned_at.or(Some(clock.stamp()));
                    self.output.event(
                        format!("asked to leave: the command gets SIGTERM, and SIGKILL after {}", span(self.countdown.grace())),
                        &json!({ "event": "asked_to_leave" }),
                    );
                    self.terminate();
                }
                _ = self.held.lost(), if !is_killed => {}
                () = renewals.notified() => {}
                () = sleep(clock, pause) => {}
            }
        }
    }

    /// Writes what is left of the lease for `leasehold check`.
    fn publish(&mut self) -> Result<Written, Failure> {
        let Some(lease_file) = &mut self.lease_file else {
            return Ok(Written::Yes);
        };
        let written = lease_file.write(|| self.held.remaining());
        written.map_err(|why| Failure::system("the lease file could not be written", &why))
    }

    fn forward(&mut self, signal: Signal) {
        if asks_to_end(signal) {
            self.asked = Some(signal);
        }
        // If the command is another user's, whoever sent the signal sees that it runs on.
        let _ = self.child.forward(signal);
    }

    fn signal(&self, signal: Signal) {
        // One that could not be sent is followed by SIGKILL, whose refusal is reported.
        let _ = self.child.signal(signal);
    }

    fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        // One that is stopped could not react to it.
        self.signal(Signal::SIGCONT);
    }

    /// Ends the command with its lease. `None` if its end has yet to be waited for.
    fn kill(&mut self) -> Option<Ended> {
        if let Some(lease_file) = &self.lease_file {
            lease_file.end();
        }
        if self.child.signal(Signal::SIGKILL) == Err(NotAllowed) {
            return Some(self.report_unkillable());
        }
        // What it has left behind is waited for only under a live lease.
        let end = self.child.end(false)?;
        Some(self.leave(end, !self.is_leaving || !self.held.is_live()))
    }

    /// Ends the command, and waits for its end under the lease: whoever gets the lock next must not
    /// meet it.
    async fn put_down(&mut self, signals: &mut Signals) {
        if let Err(NotAllowed) = self.child.signal(Signal::SIGKILL) {
            self.report_unkillable();
            return;
        }
        // A command that cannot be looked at cannot be waited for.
        while self.child.look().is_ok() && self.child.end(false).is_none() {
            signals.next().await;
        }
    }

    fn report_at_risk(&self) {
        let remaining = self.held.remaining();
        self.output.event(
            format!(
                "the lease cannot be renewed: key={} remaining={}; the command gets SIGTERM, and SIGKILL after {}",
                self.held.keys(),
                span(remaining),
                span(self.countdown.grace())
            ),
            &json!({
                "event": "at_risk",
                "key": self.held.keys(),
                "remaining_ms": millis(remaining),
                "kill_grace_ms": millis(self.countdown.grace()),
            }),
        );
    }

    /// The tool cannot end a command that it may not signal. It reports this and exits, instead of
    /// waiting for the command.
    fn report_unkillable(&self) -> Ended {
        self.output.event(
            format!(
                "the lease was lost, and the command RUNS ON WITHOUT THE LOCK: it runs as another user (sudo, setuid), and the system \
                 does not let us signal it: key={} process_group={}; end it by hand, and run leasehold itself under sudo",
                self.held.keys(),
                self.child.id()
            ),
            &json!({
                "event": "lost",
                "command": null,
                "why": "not permitted to signal the command",
                "process_group": self.child.id().as_raw(),
            }),
        );
        Ended::Lost { asked: self.asked }
    }

    /// What the command has left behind runs without the lock from now on.
    fn report_children(&self) {
        // Mostly nothing is left, and then no other process of the machine is looked at.
        if self.child.is_last() {
            return;
        }
        let children = descendants::count();
        if children > 0 {
            self.output.event(
                format!(
                    "the command has ended, and {children} of its processes run on without the lock; use --wait-children to keep the lock until they end"
                ),
                &json!({ "event": "children_left", "children": children }),
            );
        }
    }

    fn leave(&self, end: End, is_lost: bool) -> Ended {
        let status = self.child.status(end);
        if !is_lost {
            self.output
                .quiet_event(&json!({ "event": "ended", "exit": status.code() }));
            self.report_children();
            // To a command that ran on after it, SIGHUP said to read its configuration again.
            let asked = self.asked.filter(|signal| *signal != Signal::SIGHUP);
            if self.is_leaving && asked.is_none() {
                return Ended::Left(status);
            }
            return Ended::ByItself(status);
        }
        // What the command left behind in its group has no lock from now on.
        self.signal(Signal::SIGKILL);
        self.output.event(
            "the lease was lost, and the command has ended",
            &json!({ "event": "lost", "command": status.code() }),
        );
        Ended::Lost { asked: self.asked }
    }
}

async fn sleep(clock: &Clock, pause: Option<Duration>) {
    match pause {
        Some(pause) => clock.sleep(pause).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn a_command_waits_until_its_lease_was_renewed() {
        let countdown = Countdown::plan(Duration::from_secs(9), None, None).unwrap();
        let clock = Clock::system().unwrap();
        let left = RefCell::new(vec![9_000, 4_499, 2_100]);
        let remaining = || Duration::from_millis(left.borrow_mut().pop().unwrap());
        until_there_is_room(remaining, countdown, &clock).await;
        assert!(left.borrow().is_empty(), "{left:?}");
    }
}
