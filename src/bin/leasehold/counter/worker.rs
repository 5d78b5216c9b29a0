//! A counting process: takes its plan from stdin, tells each round on stdout.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use leasehold::{Clock, Executor, Label, LockManager, RunError};
use nix::unistd::Pid;
use tokio::task::JoinSet;

use super::plan::Plan;
use super::resource::Resource;
use super::round::{Outcome, Round};
use super::way::Way;
use crate::exit::{Failure, code};
use crate::output;
use crate::parent::die_with;
use crate::signals::Signals;
use crate::store;

/// The hidden subcommand.
pub(crate) const WORKER: &str = "__counting";

pub(crate) fn worker() -> ExitCode {
    output::log();
    let counted = || -> Result<(), Failure> {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .map_err(|why| Failure::system("no plan", &why))?;
        let plan: Plan = serde_json::from_str(&line).map_err(|_| {
            Failure::usage("__counting is for leasehold itself; use leasehold counter")
        })?;
        let parent =
            i32::try_from(plan.parent).map_err(|why| Failure::system("no parent", &why))?;
        die_with(Pid::from_raw(parent))
            .map_err(|why| Failure::system("nobody is left to count for", &why))?;
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|why| Failure::system("no runtime could be built", &why))?
            .block_on(count(plan))
    };
    match counted() {
        Ok(()) => ExitCode::from(code::DONE),
        Err(failure) => {
            // Whoever ended us by a signal has said so.
            if failure.code < code::SIGNAL {
                eprintln!("leasehold: {}", failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}

async fn count(plan: Plan) -> Result<(), Failure> {
    let mut signals = Signals::that_end_us()?;
    let plan = Arc::new(plan);
    let locks = LockManager::builder_at(&plan.store, store::settings(plan.ttl, Some(plan.wait)))
        .await?
        .label(Label::parse(&plan.label)?)
        .build()?;
    let clock = Clock::system()?;
    let counter = plan.counter.open().await?;
    let mut tasks = JoinSet::new();
    for _ in 0..plan.tasks {
        let (plan, clock) = (Arc::clone(&plan), clock.clone());
        let counter = counter.clone();
        let lock = Way::of(&plan, &locks, &counter);
        tasks.spawn(async move {
            for _ in 0..plan.rounds {
                let round = round(&plan, &lock, &counter, &clock).await;
                tell(&round)?;
            }
            Ok::<(), std::io::Error>(())
        });
    }
    let ended = tokio::select! {
        ended = all(&mut tasks) => ended,
        signal = signals.ending() => Err(Failure {
            code: code::of(signal),
            message: format!("ended by {signal}"),
        }),
    };
    // What is held is released, also when a round was cut short.
    tasks.shutdown().await;
    locks.shutdown().await;
    ended
}

async fn all(tasks: &mut JoinSet<std::io::Result<()>>) -> Result<(), Failure> {
    while let Some(ended) = tasks.join_next().await {
        let told = ended.map_err(|why| Failure::system("a task failed", &why))?;
        told.map_err(|why| Failure::system("a round could not be told", &why))?;
    }
    Ok(())
}

fn tell(round: &Round) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", round.to_line())?;
    out.flush()
}

async fn round(plan: &Plan, lock: &Way, counter: &Resource, clock: &Clock) -> Round {
    let asked = clock.stamp();
    let held = lock.hold(plan.wait).await;
    let mut round = Round {
        process: 0,
        outcome: Outcome::NotCounted("the lock was busy".to_owned()),
        wait: clock.stamp().since(&asked),
        token: None,
        counted: None,
    };
    match held {
        Ok(None) => {}
        Err(error) => round.outcome = Outcome::NotCounted(error.to_string()),
        Ok(Some(held)) => {
            round.token = Some(held.executor().lease().token().number());
            (round.outcome, round.counted) = add_one(plan, held.executor(), counter, clock).await;
            held.release().await;
        }
    }
    round
}

/// Reads, waits, and writes what was read and one more, as the commit of a guarded run.
async fn add_one(
    plan: &Plan,
    executor: Executor,
    counter: &Resource,
    clock: &Clock,
) -> (Outcome, Option<u64>) {
    let outcome = executor
        .guarded_async(async |tx| {
            let next = counter.read().await? + 1;
            if !plan.hold.is_zero() {
                clock.sleep(plan.hold).await;
            }
            counter.write(tx, next);
            Ok(next)
        })
        .await;
    match outcome {
        Ok(done) => (Outcome::Counted, Some(done.value)),
        Err(RunError::CommittedLate { value, .. }) => (Outcome::Counted, Some(value)),
        Err(error) => {
            let why = error.to_string();
            let outcome = match error.was_applied() {
                Some(false) => Outcome::NotCounted(why),
                _ => Outcome::Unknown(why),
            };
            (outcome, None)
        }
    }
}
