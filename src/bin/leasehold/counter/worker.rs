//! A counting process: takes its plan from stdin, tells each round on stdout.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use leasehold::{Clock, CommitError, Label, LockGuard, LockManager};
use tokio::task::JoinSet;

use super::file;
use super::plan::Plan;
use super::round::{Outcome, Round};
use crate::exit::{Failure, code};
use crate::output;
use crate::store;

/// The hidden subcommand.
pub(crate) const WORKER: &str = "__count";

pub(crate) fn worker() -> ExitCode {
    output::log();
    let counted = || -> Result<(), Failure> {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .map_err(|why| Failure::system("no plan", &why))?;
        let plan: Plan = serde_json::from_str(&line).map_err(|_| {
            Failure::usage("__count is for leasehold itself; use leasehold counter")
        })?;
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|why| Failure::system("no runtime could be built", &why))?
            .block_on(count(plan))
    };
    match counted() {
        Ok(()) => ExitCode::from(code::DONE),
        Err(failure) => {
            eprintln!("leasehold: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

async fn count(plan: Plan) -> Result<(), Failure> {
    let plan = Arc::new(plan);
    let locks = LockManager::builder_at(&plan.store, store::settings(plan.ttl, Some(plan.wait)))
        .await?
        .label(Label::parse(&plan.label)?)
        .build()?;
    let clock = Clock::system()?;
    let mut tasks = JoinSet::new();
    for _ in 0..plan.tasks {
        let (plan, locks, clock) = (Arc::clone(&plan), locks.clone(), clock.clone());
        tasks.spawn(async move {
            for _ in 0..plan.rounds {
                let round = round(&plan, &locks, &clock).await;
                tell(&round)?;
            }
            Ok::<(), std::io::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        let told = ended.map_err(|why| Failure::system("a task failed", &why))?;
        told.map_err(|why| Failure::system("a round could not be told", &why))?;
    }
    locks.shutdown().await;
    Ok(())
}

fn tell(round: &Round) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", round.to_line())?;
    out.flush()
}

async fn round(plan: &Arc<Plan>, locks: &LockManager, clock: &Clock) -> Round {
    let asked = clock.stamp();
    let held = locks.lock(&plan.lock).acquire_within(plan.wait).await;
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
        Ok(Some(guard)) => {
            round.token = Some(guard.token().number());
            (round.outcome, round.counted) = add_one(plan, &guard, clock).await;
            let _ = guard.release().await;
        }
    }
    round
}

/// Reads, waits, and writes what was read and one more, as the commit of a guarded run.
async fn add_one(plan: &Arc<Plan>, guard: &LockGuard, clock: &Clock) -> (Outcome, Option<u64>) {
    let outcome = guard
        .executor()
        .guarded_async(async |tx| {
            let next = file::read(&plan.counter)? + 1;
            if !plan.hold.is_zero() {
                clock.sleep(plan.hold).await;
            }
            let plan = Arc::clone(plan);
            tx.commit_with(move |_permit| async move {
                file::write(&plan.counter, next).map_err(CommitError::unknown)
            });
            Ok(next)
        })
        .await;
    match outcome {
        Ok(done) => (Outcome::Counted, Some(done.value)),
        Err(error) => {
            let why = error.to_string();
            let outcome = match error.was_applied() {
                Some(true) => Outcome::Counted,
                Some(false) => Outcome::NotCounted(why),
                None => Outcome::Unknown(why),
            };
            (outcome, None)
        }
    }
}
