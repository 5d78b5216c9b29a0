//! `leasehold run` and `leasehold leader`: a command that runs only while a lock is held.
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
mod held;
mod leader;
mod peers;
mod terminal;
mod under;

use std::time::Duration;

use leasehold::{Label, LockManager, LockManagerBuilder};

pub(crate) use exec::{EXEC, exec};
pub(crate) use leader::leader;

use crate::args::RunArgs;
use crate::exit::{Failure, Status, code};
use crate::output::{Output, span};
use crate::signals::Signals;
use crate::store;
use countdown::Countdown;
use held::Held;
use under::{Ended, run_under};

pub(crate) async fn run(args: &RunArgs, output: Output) -> Result<Status, Failure> {
    let mut signals = Signals::listen()?;
    let settings = store::settings(args.command.ttl, args.wait);
    let locks = tokio::select! {
        builder = LockManager::builder_for_url(args.store.shared()?, settings) => labelled(builder?, &args.label).build()?,
        signal = signals.ending() => return Ok(Status::Signal(signal)),
    };
    let ended = hold_and_run(&locks, args, &mut signals, output).await;
    put_away(&locks, &mut signals).await;
    ended
}

/// Withdraws requests without an answer before the tool exits. One more signal ends it at once: TTLs end the rest.
async fn put_away(locks: &LockManager, signals: &mut Signals) {
    tokio::select! {
        () = locks.shutdown() => {}
        _ = signals.ending() => {}
    }
}

async fn hold_and_run(
    locks: &LockManager,
    args: &RunArgs,
    signals: &mut Signals,
    output: Output,
) -> Result<Status, Failure> {
    let countdown = Countdown::of(locks, args.command.kill_grace)?;
    let held = tokio::select! {
        held = acquire(locks, args) => held?,
        signal = signals.ending() => return Ok(Status::Signal(signal)),
    };
    let ended = run_under(held, &args.command.command, countdown, signals, output).await?;
    Ok(match ended {
        Ended::ByItself(status) => status,
        Ended::Lost { .. } => Status::Code(code::LOST),
    })
}

async fn acquire(locks: &LockManager, args: &RunArgs) -> Result<Held, Failure> {
    let wait = locks.settings().wait;
    let held = if args.shared {
        let lock = locks.read_write(&args.lock);
        let guard = if wait.is_zero() {
            lock.try_read().await?
        } else {
            lock.read_within(wait).await?
        };
        guard.map(Held::Shared)
    } else {
        let lock = locks.lock(&args.lock);
        let guard = if wait.is_zero() {
            lock.try_acquire().await?
        } else {
            lock.acquire_within(wait).await?
        };
        guard.map(Held::Alone)
    };
    match held {
        Some(held) => Ok(held),
        None => Err(busy(locks, args, wait).await),
    }
}

fn labelled(builder: LockManagerBuilder, label: &Option<Label>) -> LockManagerBuilder {
    match label {
        Some(label) => builder.label(label.clone()),
        None => builder,
    }
}

async fn busy(locks: &LockManager, args: &RunArgs, wait: Duration) -> Failure {
    // For the message only: a failure here does not change the outcome.
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
