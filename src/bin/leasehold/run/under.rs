//! One command under one hold, from its start to the release.

use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use leasehold::store::Released;
use leasehold::{Clock, Lease};
use nix::sys::signal::Signal;
use serde_json::json;

use super::child::{Child, End};
use super::countdown::{Countdown, Step};
use super::held::Held;
use crate::exit::{Failure, with_causes};
use crate::output::{Output, millis, span};
use crate::signals::Signals;

/// How a command under a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// With this exit status, while the lease was live.
    ByItself(u8),
    /// With its lease, or after it.
    Lost,
}

pub(super) async fn run_under(
    held: Held,
    command: &[OsString],
    countdown: Countdown,
    signals: &mut Signals,
    output: Output,
) -> Result<Ended, Failure> {
    let lease = held.lease();
    output.quiet_event(&json!({
        "event": "acquired",
        "key": lease.key().as_str(),
        "token": lease.token().number(),
    }));
    let ended = match Child::spawn(command, lease) {
        Ok(mut child) => {
            let ended = watch(&mut child, lease, countdown, signals, output).await;
            if ended.is_err() {
                // Nobody watches over it any more.
                child.tell(Signal::SIGKILL);
            }
            ended
        }
        Err(failure) => Err(failure),
    };
    if let Released::Unknown(error) = held.release().await {
        let why = with_causes(&error);
        output.event(
            format!("the lock could not be released, and ends with its ttl: {why}"),
            &json!({ "event": "release_unknown", "why": why }),
        );
    }
    ended
}

/// Watches over the command until it has ended.
async fn watch(
    child: &mut Child,
    lease: &Lease,
    countdown: Countdown,
    signals: &mut Signals,
    output: Output,
) -> Result<Ended, Failure> {
    let clock = Clock::system()?;
    let mut told_at = None;
    let mut is_killed = false;
    loop {
        let told_for = told_at.map(|told_at| clock.stamp().since(&told_at));
        let pause = match countdown.step(lease.remaining(), told_for) {
            _ if is_killed => None,
            Step::Wait(pause) => Some(pause),
            Step::Tell => {
                told_at = Some(clock.stamp());
                at_risk(lease, countdown, output);
                child.tell(Signal::SIGTERM);
                // One that is stopped could not act on it.
                child.tell(Signal::SIGCONT);
                continue;
            }
            Step::End => {
                is_killed = true;
                child.tell(Signal::SIGKILL);
                None
            }
        };
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::SIGCHLD => match child.look()? {
                    Some(end) => {
                        let is_lost = told_at.is_some() || is_killed || !lease.is_live();
                        return Ok(leave(child, end, is_lost, output));
                    }
                    None => child.keep_going(),
                },
                signal => child.pass_on(signal),
            },
            _ = lease.lost(), if !is_killed => {}
            () = sleep(&clock, pause) => {}
        }
    }
}

async fn sleep(clock: &Clock, pause: Option<Duration>) {
    match pause {
        Some(pause) => clock.sleep(pause).await,
        None => pending().await,
    }
}

fn at_risk(lease: &Lease, countdown: Countdown, output: Output) {
    let remaining = lease.remaining();
    output.event(
        format!(
            "the lease cannot be renewed: key={} remaining={}; the command gets SIGTERM, and SIGKILL after {}",
            lease.key(),
            span(remaining),
            span(countdown.grace())
        ),
        &json!({
            "event": "at_risk",
            "key": lease.key().as_str(),
            "remaining_ms": millis(remaining),
            "kill_grace_ms": millis(countdown.grace()),
        }),
    );
}

fn leave(child: &Child, end: End, is_lost: bool, output: Output) -> Ended {
    if !is_lost {
        output.quiet_event(&json!({ "event": "ended", "exit": end.status() }));
        return Ended::ByItself(end.status());
    }
    // What it left behind in its group is without a lock from now on.
    child.tell(Signal::SIGKILL);
    output.event(
        "the lease was lost, and the command has ended",
        &json!({ "event": "lost", "command": end.status() }),
    );
    Ended::Lost
}
