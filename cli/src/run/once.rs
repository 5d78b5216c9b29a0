//! `leasehold run --once`: the command of one fire time, unless a host has done it.

use std::future::pending;

use leasehold::once::{AfterDeath, JobError, JobOutcome, OneTimeJob};
use leasehold::{ErrorKind, LockGuard, LockManager};
use serde_json::json;
use tokio::sync::{Mutex, Notify};

use super::countdown::Countdown;
use super::held::HoldOfRun;
use super::pause::pause_after;
use super::under::{Ended, run_under};
use crate::args::{OnDeath, OnceArgs, RunArgs};
use crate::exit::{Failure, Status, code, with_causes};
use crate::fire::Fire;
use crate::output::Output;
use crate::signals::Signals;
use crate::wait::Wait;

/// Why a command does not count as done.
type Undone = Result<Ended, Failure>;

fn job(locks: &LockManager, fire: &Fire, args: &OnceArgs) -> OneTimeJob {
    let job = locks.once(&fire.name, fire.time);
    let job = match args.keep {
        Some(keep) => job.keep(keep),
        None => job,
    };
    job.after_death(match args.on_death {
        None | Some(OnDeath::Retry) => AfterDeath::Retry,
        Some(OnDeath::Skip) => AfterDeath::Skip,
    })
}

pub(super) async fn run_once(
    locks: &LockManager,
    fire: &Fire,
    args: &RunArgs,
    signals: &mut Signals,
    renewals: &Notify,
    output: Output,
) -> Result<Status, Failure> {
    let countdown = Countdown::of(locks, args.command.kill_grace)?;
    let job = job(locks, fire, &args.once);
    let signals = Mutex::new(signals);
    loop {
        let begins = Notify::new();
        // A signal ends a tool that waits. From the begin of the command on it is for the command.
        let asked_to_end = async {
            let asked = {
                let mut signals = signals.lock().await;
                tokio::select! {
                    biased;
                    signal = signals.ending() => Some(signal),
                    () = begins.notified() => None,
                }
            };
            match asked {
                Some(signal) => signal,
                None => pending().await,
            }
        };
        let ran = job.run(async |guard: &LockGuard| {
            begins.notify_one();
            let mut signals = signals.lock().await;
            let held = HoldOfRun::Job(guard);
            let ended = run_under(
                held,
                &args.command,
                countdown,
                &mut signals,
                renewals,
                output,
            );
            done(ended.await, args.once.failure_counts)
        });
        let ran = tokio::select! {
            biased;
            signal = asked_to_end => return Ok(Status::Signal(signal)),
            ran = ran => ran,
        };
        match ran {
            Err(JobError::NotRun { why })
                if why.kind() == ErrorKind::Contended && args.lock.wait == Some(Wait::Forever) =>
            {
                let mut signals = signals.lock().await;
                tokio::select! {
                    biased;
                    signal = signals.ending() => return Ok(Status::Signal(signal)),
                    paused = pause_after(&why) => paused?,
                }
            }
            ran => return ended(ran, &job, args, output),
        }
    }
}

/// Whether a command that ended so is done. One that a signal ended has not failed by itself: its
/// host may be going down. One that could not be started has not run.
fn done(ended: Undone, failure_counts: bool) -> Result<Status, Undone> {
    match ended {
        Ok(Ended::ByItself(status @ Status::Code(code)))
            if code == code::DONE || failure_counts && has_run(code) =>
        {
            Ok(status)
        }
        undone => Err(undone),
    }
}

fn has_run(code: u8) -> bool {
    !matches!(code, code::NOT_EXECUTABLE | code::NOT_FOUND)
}

fn ended(
    ran: Result<JobOutcome<Status>, JobError<Status, Undone>>,
    job: &OneTimeJob,
    args: &RunArgs,
    output: Output,
) -> Result<Status, Failure> {
    let key = job.key()?;
    let not_run = Status::Code(args.lock.exit_code.unwrap_or(code::DONE));
    let undone = |undone: Undone| {
        undone.map(|ended| match ended {
            Ended::ByItself(status) | Ended::Left(status) => status,
            Ended::Lost { .. } => Status::Code(args.lock.exit_code.unwrap_or(code::LOST)),
        })
    };
    match ran {
        Ok(JobOutcome::Ran(status)) => Ok(status),
        Ok(JobOutcome::AlreadyBegun) => {
            output.event(
                format!("the job had begun before and is not done, and is not run again: key={key}; its host died, or it failed"),
                &json!({ "event": "already_begun", "key": key.as_str() }),
            );
            Ok(not_run)
        }
        Ok(_) => {
            tracing::info!(target: "leasehold::run", %key, "the job is done already");
            output.quiet_event(&json!({ "event": "already_done", "key": key.as_str() }));
            Ok(not_run)
        }
        Err(JobError::Failed { why }) => undone(why),
        Err(JobError::NotRecorded { result, why }) => {
            let why = with_causes(&why);
            output.event(
                format!("the command has ended, and that is not recorded; another host may run it again: key={key}: {why}"),
                &json!({ "event": "not_recorded", "key": key.as_str(), "why": why }),
            );
            result.or_else(undone)
        }
        Err(JobError::NotRun { why }) => {
            let is_busy = why.kind() == ErrorKind::Contended;
            let mut failure = Failure::from(why);
            if is_busy {
                failure.message += &args.store.directory();
            }
            Err(args.lock.exit_with(failure))
        }
        Err(_) => Err(Failure {
            code: code::SOFTWARE,
            message: format!("the job ended in a way that this tool does not know: key={key}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn a_command_is_done_by_its_exit_code_alone() {
        let exits = |code| Ok(Ended::ByItself(Status::Code(code)));
        let signalled = || Ok(Ended::ByItself(Status::Signal(Signal::SIGTERM)));
        let lost = || Ok(Ended::Lost { asked: None });
        let not_started = || Err(Failure::usage("no such command"));
        assert!(done(exits(0), false).is_ok());
        assert!(done(exits(1), false).is_err());
        assert!(done(exits(1), true).is_ok());
        for failure_counts in [true, false] {
            assert!(done(signalled(), failure_counts).is_err());
            assert!(done(exits(127), failure_counts).is_err());
            assert!(done(lost(), failure_counts).is_err());
            assert!(done(not_started(), failure_counts).is_err());
        }
    }
}
