//! `leasehold counter`: many processes, one counter that nothing protects but the lock.
//!
//! ```text
//!  leasehold counter ──► leasehold __counting (one for each process) ──► lock, read, add one, write, release
//!        ▲                       │
//!        └── a line a round ─────┘
//! ```
//!
//! The counter is a file, so that it is the same for every store, and is written by the commit of a
//! guarded run. With a nemesis it is a value in the lock's own store, behind a fence: a process
//! that is stopped between its check and its write cannot be asked to wait, only refused.

mod hold_mode;
mod nemesis;
mod plan;
mod process;
mod progress;
mod report;
mod resource;
mod round;
mod turns;
mod worker;

use std::time::Duration;

use leasehold::LockManager;
use leasehold::clock::Clock;
use leasehold::store::Capability;

pub(crate) use worker::{WORKER, worker};

use crate::args::{CounterArgs, CounterMode, NemesisKind};
use crate::exit::{Failure, code};
use crate::output::Output;
use crate::signals::Signals;
use crate::store;
use nemesis::Nemesis;
use plan::{CountPlan, Until};
use process::{CountingProcess, ProcessMessage};
use progress::Progress;
use report::Report;
use resource::ResourcePlace;
use round::Round;
use tokio::sync::mpsc::unbounded_channel;

pub(crate) async fn counter(args: &CounterArgs, output: Output) -> Result<u8, Failure> {
    let url = &*args.store.shared()?;
    if args.nemesis.is_some() {
        nemesis::check_url(url)?;
    }
    let ttl = args.ttl.or(args.nemesis.and_then(|_| nemesis::ttl(url)));
    // One request first, so that an unreachable store is reported once and not by every process.
    let locks = LockManager::builder_for_url(url, store::settings(ttl, Some(args.wait)))
        .await?
        .build()?;
    locks.inspect(&args.lock).await?;
    check(args, &locks.capability())?;
    let ttl_in_force = locks.settings().ttl;
    locks.shutdown().await;

    let clock = Clock::system()?;
    // Until now there was nothing to put away.
    let mut signals = Signals::that_end_us()?;
    let place = ResourcePlace::make(args.nemesis.map(|_| url)).await?;
    let plan = CountPlan::of(args, url, ttl, place.clone(), output.json);
    let started = clock.stamp();
    let report = match run(args, &plan, ttl_in_force, &mut signals, output).await {
        Ok((rounds, pauses)) => {
            let took = clock.stamp().since(&started);
            counted(&place).await.map(|counted| Report {
                took,
                counted,
                rounds,
                processes: args.processes as usize,
                tasks: args.tasks as usize,
                pauses,
            })
        }
        Err(failure) => Err(failure),
    };
    place.remove().await;
    let report = report?;
    output.answer(report.people(), &report.scripts())?;
    Ok(if report.lost() == 0 {
        code::DONE
    } else {
        code::NO
    })
}

/// Refuses options that the store cannot serve, or that do not go together.
fn check(args: &CounterArgs, capability: &Capability) -> Result<(), Failure> {
    if args.nemesis.is_some() {
        nemesis::check(capability)?;
    }
    let can = match args.mode {
        CounterMode::Exclusive => true,
        CounterMode::Fair => capability.is_fair(),
        CounterMode::Write => capability.read_write,
    };
    if !can {
        return Err(Failure::usage(
            "this store has no locks of that mode; leave out --mode, or use redis://, which has all of them",
        ));
    }
    if args.mode == CounterMode::Write && args.nemesis.is_some() {
        return Err(Failure::usage(
            "--nemesis ties a fence to the lock, which --mode write does not take; leave out one of the two",
        ));
    }
    Ok(())
}

/// What the counter has come to.
async fn counted(place: &ResourcePlace) -> Result<u64, Failure> {
    let counted = match place.open().await {
        Ok(counter) => counter.read().await,
        Err(failure) => Err(failure.message.into()),
    };
    counted.map_err(|why| Failure::system("the counter could not be read", &why))
}

/// Every round of every process, in the order in which they came, and how often the nemesis struck.
async fn run(
    args: &CounterArgs,
    plan: &CountPlan,
    ttl: Duration,
    signals: &mut Signals,
    output: Output,
) -> Result<(Vec<Round>, Option<usize>), Failure> {
    let (reported, mut news) = unbounded_channel();
    let mut processes = Vec::new();
    for process in 0..args.processes as usize {
        processes.push(CountingProcess::start(plan, process, reported.clone())?);
    }
    drop(reported);
    let tasks = args.processes as usize * args.tasks as usize;
    let mut progress = Progress::of(plan.until, tasks, output);
    let (mut ready, mut nemesis, mut all) = (0, None, Vec::new());
    loop {
        let reported = tokio::select! {
            reported = news.recv() => reported,
            signal = signals.ending() => {
                progress.done();
                // It would stop a process that is to end.
                nemesis.map(Nemesis::end);
                process::end(&mut processes).await?;
                return Err(Failure {
                    code: code::of(signal),
                    message: format!("ended by {signal} after {} rounds", all.len()),
                });
            }
        };
        match reported {
            Some(ProcessMessage::Ready) => {
                ready += 1;
                if ready == processes.len() {
                    // All at once, so that no process has the lock to itself while the others
                    // connect.
                    processes.iter_mut().try_for_each(CountingProcess::go)?;
                    nemesis = args.nemesis.map(|NemesisKind::Pause| {
                        Nemesis::pause(
                            processes.iter().filter_map(CountingProcess::id).collect(),
                            ttl,
                        )
                    });
                }
            }
            Some(ProcessMessage::Round(round)) => {
                progress.one_more(round.answered());
                all.push(round);
            }
            Some(ProcessMessage::Ended) if ready < processes.len() => {
                return Err(process::ended_early());
            }
            Some(ProcessMessage::Ended) => {}
            None => break,
        }
    }
    progress.done();
    let pauses = nemesis.map(Nemesis::end);
    processes.iter_mut().try_for_each(CountingProcess::ended)?;
    if let Until::Rounds(each) = plan.until
        && all.len() != tasks * each as usize
    {
        return Err(Failure {
            code: code::SOFTWARE,
            message: format!(
                "of {tasks} times {each} rounds only {} were reported",
                all.len()
            ),
        });
    }
    Ok((all, pauses))
}
