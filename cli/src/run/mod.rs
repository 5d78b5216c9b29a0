//! `leasehold run` and `leasehold leader`: a command that runs only while a lock is held.
//!
//! ```text
//!  leasehold run ──► lock held ──► leasehold __exec ──► the command, in a process group of its own
//!       │                              └─ dies with its parent, takes the terminal
//!       ├─ signals that come to us go to the group
//!       └─ lease running out: SIGTERM, and SIGKILL before the deadline (countdown.rs)
//! ```
//!
//! The lock is released only when the command has ended. Processes that it leaves behind are
//! reported, and waited for only with `--wait-children`.
//!
//! Not promised: when the tool itself is stopped (SIGSTOP) for longer than its lease, the command
//! runs on; it is killed when the tool goes on. A fence at the resource, raised to
//! `LEASEHOLD_TOKEN`, is what shuts out such a command.

mod acquire;
mod child;
mod connect;
mod countdown;
mod descendants;
mod exec;
mod held;
mod hold;
mod leader;
mod once;
mod pause;
mod peers;
mod terminal;
mod under;

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::handler::Event;
use leasehold::store::Label;
use leasehold::{Error, LockManager, LockManagerBuilder};
use tokio::sync::Notify;

pub(crate) use connect::Patience;
pub(crate) use exec::{EXEC, exec};
pub(crate) use hold::hold;
pub(crate) use leader::{leader, step_down};

use crate::args::{LockArgs, RunArgs};
use crate::exit::{Failure, Status, code};
use crate::output::Output;
use crate::signals::Signals;
use crate::store;
use acquire::acquire;
use connect::connect;
use countdown::Countdown;
use once::run_once;
use under::{Ended, run_under};

/// How long the tool asks a store that does not answer to free what it held. The TTL frees it
/// otherwise.
const PARTING: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &RunArgs, output: Output) -> Result<Status, Failure> {
    let mut signals = Signals::listen()?;
    args.lock.check()?;
    args.once.check(&args.store)?;
    // As with flock(1), what the command has started keeps the lock, if the tool is killed.
    let url = args.store.for_holder("&children=hold")?;
    let renewals = Arc::new(Notify::new());
    let settings = store::settings(args.command.ttl, args.lock.within());
    let locks = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Status::Signal(signal)),
        builder = connect(&url, settings, args.lock.patience(), output) => {
            observed(labelled(builder?, &args.lock)?, &renewals).build()?
        }
    };
    let ended = match &args.once.once {
        Some(fire) => run_once(&locks, fire, args, &mut signals, &renewals, output).await,
        None => hold_and_run(&locks, args, &mut signals, &renewals, output).await,
    };
    let rests = args.lock.at_least.is_some() || args.once.once.is_some();
    put_away(&locks, &mut signals, parting(rests)).await;
    ended
}

/// For how long what is left in the store is put away. A rest is waited for until its answer, or
/// another host runs the job again.
fn parting(rests: bool) -> Option<Duration> {
    (!rests).then_some(PARTING)
}

/// Withdraws requests without an answer before the tool exits. One more signal ends it at once:
/// TTLs end the rest.
async fn put_away(locks: &LockManager, signals: &mut Signals, limit: Option<Duration>) {
    let is_over = async {
        match (limit, Clock::system()) {
            (Some(limit), Ok(clock)) => clock.sleep(limit).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        () = locks.shutdown() => {}
        () = is_over => {}
        _ = signals.ending() => {}
    }
}

async fn hold_and_run(
    locks: &LockManager,
    args: &RunArgs,
    signals: &mut Signals,
    renewals: &Notify,
    output: Output,
) -> Result<Status, Failure> {
    let countdown = Countdown::of(locks, args.command.kill_grace)?;
    let held = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Status::Signal(signal)),
        held = acquire(locks, &args.store, &args.lock) => held.map_err(|failure| args.lock.exit_with(failure))?,
    };
    let ended = run_under(held, &args.command, countdown, signals, renewals, output).await?;
    Ok(match ended {
        // Only a leader is asked to leave.
        Ended::ByItself(status) | Ended::Left(status) => status,
        Ended::Lost { .. } => Status::Code(args.lock.exit_code.unwrap_or(code::LOST)),
    })
}

fn labelled(builder: LockManagerBuilder, args: &LockArgs) -> Result<LockManagerBuilder, Error> {
    let label = args.label.clone().unwrap_or_else(Label::of_this_process);
    Ok(builder.label(match &args.purpose {
        Some(purpose) => label.with_purpose(purpose)?,
        None => label,
    }))
}

/// A manager that notifies after each batch of renewals.
fn observed(builder: LockManagerBuilder, renewals: &Arc<Notify>) -> LockManagerBuilder {
    let renewals = Arc::clone(renewals);
    builder.observer(move |event: &Event<'_>| {
        if matches!(event, Event::Renew { .. }) {
            renewals.notify_one();
        }
    })
}
