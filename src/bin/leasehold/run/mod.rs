//! `leasehold run`: a command that runs only while a lock is held.
//!
//! ```text
//!  leasehold run ──► lock held ──► leasehold __exec ──► the command, in a process group of its own
//!       │                              └─ dies with its parent, takes the terminal
//!       ├─ signals that come to us go to the group
//!       └─ lease running out: SIGTERM, and SIGKILL before the deadline (countdown.rs)
//! ```
//!
//! The lock is released only when the command has ended. What it has left running in the background is not waited for.
//!
//! Not promised: when the tool itself is stopped (SIGSTOP) for longer than its lease, the command runs on; it is killed
//! when the tool goes on. A fence at the resource, raised to `LEASEHOLD_TOKEN`, is what shuts out such a command.

mod child;
mod countdown;
mod exec;
mod signals;
mod terminal;

use std::future::pending;
use std::time::Duration;

use leasehold::store::Released;
use leasehold::{Builder, Clock, LockGuard, LockManager};
use nix::sys::signal::Signal;
use serde_json::json;

pub(crate) use exec::{EXEC, exec};

use crate::args::RunArgs;
use crate::exit::{Failure, code};
use crate::output::{Output, millis, span};
use crate::store;
use child::{Child, End};
use countdown::{Countdown, Step};
use signals::Signals;

pub(crate) async fn run(args: &RunArgs, output: Output) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let settings = store::settings(args.ttl, args.wait);
    let locks = tokio::select! {
        builder = LockManager::builder_at(args.store.shared()?, settings) => labelled(builder?, args).build()?,
        signal = signals.ending() => return Ok(code::of(signal)),
    };
    let ended = hold_and_run(&locks, args, &mut signals, output).await;
    // What was asked of the store and not answered is withdrawn before we go.
    locks.shutdown().await;
    ended
}

async fn hold_and_run(
    locks: &LockManager,
    args: &RunArgs,
    signals: &mut Signals,
    output: Output,
) -> Result<u8, Failure> {
    // Now that the store has had its say in the ttl.
    let settings = locks.settings();
    let usable = settings.terms().usable(settings.ttl);
    let countdown = Countdown::plan(usable, locks.capability().heartbeat, args.kill_grace)?;
    let guard = tokio::select! {
        guard = acquire(locks, args) => guard?,
        signal = signals.ending() => return Ok(code::of(signal)),
    };
    output.quiet_event(&json!({
        "event": "acquired",
        "key": guard.key().as_str(),
        "token": guard.token().number(),
    }));
    let ended = match Child::spawn(&args.command, &guard) {
        Ok(mut child) => {
            let ended = watch(&mut child, &guard, countdown, signals, output).await;
            if ended.is_err() {
                // Nobody watches over it any more.
                child.tell(Signal::SIGKILL);
            }
            ended
        }
        Err(failure) => Err(failure),
    };
    if let Released::Unknown(why) = guard.release().await {
        output.event(
            format!("the lock could not be released, and ends with its ttl: {why}"),
            &json!({ "event": "release_unknown", "why": why.to_string() }),
        );
    }
    if let Ok(status) = ended {
        output.quiet_event(&json!({ "event": "ended", "exit": status }));
    }
    ended
}

async fn acquire(locks: &LockManager, args: &RunArgs) -> Result<LockGuard, Failure> {
    let wait = locks.settings().wait;
    let lock = locks.lock(&args.lock);
    let guard = if wait.is_zero() {
        lock.try_acquire().await?
    } else {
        lock.acquire_within(wait).await?
    };
    match guard {
        Some(guard) => Ok(guard),
        None => Err(busy(locks, args, wait).await),
    }
}

fn labelled(builder: Builder, args: &RunArgs) -> Builder {
    match &args.label {
        Some(label) => builder.label(label.clone()),
        None => builder,
    }
}

async fn busy(locks: &LockManager, args: &RunArgs, wait: Duration) -> Failure {
    // Only to tell: a store that cannot say does not change the outcome.
    let holder = match locks.inspect(&args.lock).await {
        Ok(Some(record)) => record.label.map(|label| format!(" holder={label}")),
        _ => None,
    };
    Failure {
        code: code::NOT_ACQUIRED,
        message: format!(
            "the lock was not acquired: key={} wait={}{}; try later, or wait longer",
            args.lock,
            span(wait),
            holder.unwrap_or_default()
        ),
    }
}

/// Watches over the command until it has ended. The exit status to leave with.
async fn watch(
    child: &mut Child,
    guard: &LockGuard,
    countdown: Countdown,
    signals: &mut Signals,
    output: Output,
) -> Result<u8, Failure> {
    let clock = Clock::system()?;
    let mut told_at = None;
    let mut is_killed = false;
    loop {
        let told_for = told_at.map(|told_at| clock.stamp().since(&told_at));
        let pause = match countdown.step(guard.remaining(), told_for) {
            _ if is_killed => None,
            Step::Wait(pause) => Some(pause),
            Step::Tell => {
                told_at = Some(clock.stamp());
                at_risk(guard, countdown, output);
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
                        let is_lost = told_at.is_some() || is_killed || !guard.lease().is_live();
                        return Ok(leave(child, end, is_lost, output));
                    }
                    None => child.keep_going(),
                },
                signal => child.pass_on(signal),
            },
            _ = guard.lost(), if !is_killed => {}
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

fn at_risk(guard: &LockGuard, countdown: Countdown, output: Output) {
    let remaining = guard.remaining();
    output.event(
        format!(
            "the lease cannot be renewed: key={} remaining={}; the command gets SIGTERM, and SIGKILL after {}",
            guard.key(),
            span(remaining),
            span(countdown.grace())
        ),
        &json!({
            "event": "at_risk",
            "key": guard.key().as_str(),
            "remaining_ms": millis(remaining),
            "kill_grace_ms": millis(countdown.grace()),
        }),
    );
}

fn leave(child: &Child, end: End, is_lost: bool, output: Output) -> u8 {
    if !is_lost {
        return end.status();
    }
    // What it left behind in its group is without a lock from now on.
    child.tell(Signal::SIGKILL);
    output.event(
        "the lease was lost, and the command has ended",
        &json!({ "event": "lost", "command": end.status() }),
    );
    code::LOST
}
