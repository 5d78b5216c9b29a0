//! A counting process: reads its plan from stdin, and prints each round on stdout.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Stamp};
use leasehold::store::Label;
use leasehold::{Executor, LockManager, RunError};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::hold_mode::HoldMode;
use super::plan::CountPlan;
use super::resource::Resource;
use super::round::{Outcome, Round};
use crate::exit::{Failure, code};
use crate::output::Output;
use crate::parent::die_with;
use crate::signals::Signals;
use crate::store;

/// The hidden subcommand.
pub(crate) const WORKER: &str = "__counting";

/// Printed when it is connected. It counts after it has read a second line.
pub(super) const READY: &str = "ready";

pub(crate) fn worker() -> ExitCode {
    let mut output = Output { json: false };
    let mut counted = || -> Result<(), Failure> {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .map_err(|why| Failure::system("no plan", &why))?;
        let plan: CountPlan = serde_json::from_str(&line).map_err(|_| {
            Failure::usage("__counting is for leasehold itself; use leasehold counter")
        })?;
        output.json = plan.json;
        output.listen(0);
        let parent =
            i32::try_from(plan.parent).map_err(|why| Failure::system("no parent", &why))?;
        die_with(Pid::from_raw(parent))
            .map_err(|why| Failure::system("the counter has ended", &why))?;
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|why| Failure::system("no runtime could be built", &why))?
            .block_on(count(plan))
    };
    match counted() {
        Ok(()) => ExitCode::from(code::DONE),
        Err(failure) => {
            // The sender of the signal knows the reason.
            if failure.code < code::SIGNAL {
                output.failure(&failure);
            }
            ExitCode::from(failure.code)
        }
    }
}

async fn count(plan: CountPlan) -> Result<(), Failure> {
    let mut signals = Signals::that_end_us()?;
    let plan = Arc::new(plan);
    let builder =
        LockManager::builder_for_url(&plan.store, store::settings(plan.ttl, Some(plan.wait)))
            .await?
            .label(Label::parse(&plan.label)?);
    let locks = builder.build()?;
    let clock = Clock::system()?;
    let counter = plan.counter.open().await?;
    let go = ready()?;
    tokio::select! {
        went = go => went.map_err(|_| Failure {
            code: code::SOFTWARE,
            message: "the counter has ended".to_owned(),
        })?,
        signal = signals.ending() => {
            locks.shutdown().await;
            return Err(ended_by(signal));
        }
    }
    let mut tasks = JoinSet::new();
    let began = clock.stamp();
    for task in 0..plan.tasks {
        let counter = counter.clone();
        let counting = Counting {
            lock: HoldMode::of(&plan, &locks, &counter),
            plan: Arc::clone(&plan),
            clock: clock.clone(),
            counter,
            began,
            task,
        };
        tasks.spawn(async move { counting.run().await });
    }
    let ended = tokio::select! {
        ended = all(&mut tasks) => ended,
        signal = signals.ending() => Err(ended_by(signal)),
    };
    // What is held is released, also when a round was cut short.
    tasks.shutdown().await;
    locks.shutdown().await;
    ended
}

async fn all(tasks: &mut JoinSet<std::io::Result<()>>) -> Result<(), Failure> {
    while let Some(ended) = tasks.join_next().await {
        let reported = ended.map_err(|why| Failure::system("a task failed", &why))?;
        reported.map_err(|why| Failure::system("a round could not be reported", &why))?;
    }
    Ok(())
}

fn ended_by(signal: Signal) -> Failure {
    Failure {
        code: code::of(signal),
        message: format!("ended by {signal}"),
    }
}

/// Says that it is ready. What it gives completes when the counting may begin.
fn ready() -> Result<oneshot::Receiver<()>, Failure> {
    let mut out = std::io::stdout().lock();
    let reported = writeln!(out, "{READY}").and_then(|()| out.flush());
    reported.map_err(|why| Failure::system("the counter has ended", &why))?;
    let (go, gone) = oneshot::channel();
    // A thread, because a signal must be handled while no line arrives.
    std::thread::spawn(move || {
        if matches!(std::io::stdin().read_line(&mut String::new()), Ok(1..)) {
            let _ = go.send(());
        }
    });
    Ok(gone)
}

fn write(round: &Round) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", round.to_line())?;
    out.flush()
}

/// One task of this process.
struct Counting {
    plan: Arc<CountPlan>,
    lock: HoldMode,
    counter: Resource,
    clock: Clock,
    began: Stamp,
    task: u32,
}

impl Counting {
    async fn run(&self) -> std::io::Result<()> {
        for rounds in 1.. {
            let round = self.round().await;
            write(&round)?;
            if self.plan.until.is_reached(rounds, self.age()) {
                break;
            }
        }
        Ok(())
    }

    fn age(&self) -> Duration {
        self.clock.stamp().since(&self.began)
    }

    async fn round(&self) -> Round {
        let asked = self.age();
        let held = self.lock.hold(self.plan.wait).await;
        let mut round = Round {
            process: 0,
            task: self.task,
            outcome: Outcome::NotCounted("the lock was busy".to_owned()),
            asked,
            wait: self.age().saturating_sub(asked),
            token: None,
            counted: None,
            late_by: None,
        };
        match held {
            Ok(None) => {}
            Err(error) => round.outcome = Outcome::NotCounted(error.to_string()),
            Ok(Some(held)) => {
                round.token = Some(held.executor().lease().token().number());
                self.add_one(held.executor(), &mut round).await;
                held.release().await;
            }
        }
        round
    }

    /// Reads, waits, and writes what was read and one more, as the commit of a guarded run.
    async fn add_one(&self, executor: Executor, round: &mut Round) {
        let outcome = executor
            .guarded_async(async |tx| {
                let next = self.counter.read().await? + 1;
                if !self.plan.hold.is_zero() {
                    self.clock.sleep(self.plan.hold).await;
                }
                self.counter.write(tx, next);
                Ok(next)
            })
            .await;
        round.outcome = match outcome {
            Ok(done) => {
                round.counted = Some(done.value);
                Outcome::Counted
            }
            Err(RunError::CommittedLate { value, late_by, .. }) => {
                round.counted = Some(value);
                round.late_by = Some(late_by);
                Outcome::Counted
            }
            Err(error) => {
                let why = error.to_string();
                match error.was_applied() {
                    Some(false) => Outcome::NotCounted(why),
                    _ => Outcome::Unknown(why),
                }
            }
        };
    }
}
