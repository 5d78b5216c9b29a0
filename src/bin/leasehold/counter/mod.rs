//! `leasehold counter`: many processes, one counter that nothing protects but the lock.
//!
//! ```text
//!  leasehold counter ──► leasehold __counting (one for each process) ──► lock, read, add one, write, release
//!        ▲                       │
//!        └── a line a round ─────┘
//! ```
//!
//! The counter is a file, so that it is the same for every store, and is written by the commit of a guarded run. With a
//! nemesis it is a value in the lock's own store, behind a fence: a process that is stopped between its check and its write
//! cannot be told to wait, only be refused.

mod nemesis;
mod plan;
mod progress;
mod report;
mod resource;
mod round;
mod way;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::{Clock, LockManager};

pub(crate) use worker::{WORKER, worker};

use crate::args::{CounterArgs, CounterMode, NemesisKind};
use crate::exit::{Failure, code};
use crate::output::Output;
use crate::signals::Signals;
use crate::store;
use nemesis::Nemesis;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plan::Plan;
use progress::Progress;
use report::Report;
use resource::Place;
use round::Round;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// How often, and how far apart, we look whether the processes have ended that we told to: two seconds in all.
const END_LOOKS: u32 = 200;
const END_PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn counter(args: &CounterArgs, output: Output) -> Result<u8, Failure> {
    let url = args.store.shared()?;
    if args.nemesis.is_some() {
        nemesis::check_url(url)?;
    }
    let ttl = args.ttl.or(args.nemesis.and_then(|_| nemesis::ttl(url)));
    // One look, so that a store which cannot be reached is told once and not by every process.
    let locks = LockManager::builder_at(url, store::settings(ttl, Some(args.wait)))
        .await?
        .build()?;
    locks.inspect(&args.lock).await?;
    let capability = locks.capability();
    if args.nemesis.is_some() {
        nemesis::check(&capability)?;
    }
    let can = match args.mode {
        CounterMode::Exclusive => true,
        CounterMode::Fair => capability.is_fair(),
        CounterMode::Write => capability.read_write,
    };
    if !can {
        return Err(Failure::usage(
            "this store has no locks of that mode; leave out --mode, or use another store",
        ));
    }
    if args.mode == CounterMode::Write && args.nemesis.is_some() {
        return Err(Failure::usage(
            "--nemesis ties a fence to the lock, which --mode write does not take; leave out one of the two",
        ));
    }
    let ttl_in_force = locks.settings().ttl;
    locks.shutdown().await;

    // Until now there was nothing to put away.
    let mut signals = Signals::that_end_us()?;
    let place = Place::make(args.nemesis.map(|_| url)).await?;
    let plan = Plan::of(args, url, ttl, place.clone());
    let clock = Clock::system()?;
    let started = clock.stamp();
    let report = match run(args, &plan, ttl_in_force, &mut signals).await {
        Ok((rounds, pauses)) => {
            let took = clock.stamp().since(&started);
            let counted = match place.open().await {
                Ok(counter) => counter.read().await,
                Err(failure) => Err(failure.message.into()),
            };
            counted
                .map(|counted| Report {
                    took,
                    counted,
                    rounds,
                    processes: args.processes as usize,
                    pauses,
                })
                .map_err(|why| Failure::system("the counter could not be read", &why))
        }
        Err(failure) => Err(failure),
    };
    place.remove().await;
    let report = report?;
    output.answer(report.people(), &report.scripts());
    Ok(if report.lost() == 0 {
        code::DONE
    } else {
        code::NO
    })
}

/// Every round of every process, in the order in which they came, and how often the nemesis struck.
async fn run(
    args: &CounterArgs,
    plan: &Plan,
    ttl: Duration,
    signals: &mut Signals,
) -> Result<(Vec<Round>, Option<usize>), Failure> {
    let (told, mut rounds) = unbounded_channel();
    let mut processes = Vec::new();
    for process in 0..args.processes as usize {
        processes.push(start(plan, process, told.clone())?);
    }
    drop(told);
    let nemesis = args.nemesis.map(|NemesisKind::Pause| {
        let ids = processes
            .iter()
            .filter_map(|process| i32::try_from(process.0.id()).ok());
        Nemesis::pause(ids.map(Pid::from_raw).collect(), ttl)
    });
    let expected = args.processes as usize * args.tasks as usize * args.rounds as usize;
    let mut progress = Progress::of(expected);
    let mut all = Vec::with_capacity(expected.min(1 << 20));
    // Ends when every process has closed its end.
    loop {
        tokio::select! {
            round = rounds.recv() => match round {
                Some(round) => {
                    progress.one_more();
                    all.push(round);
                }
                None => break,
            },
            signal = signals.ending() => {
                progress.done();
                end(&mut processes).await?;
                return Err(Failure {
                    code: code::of(signal),
                    message: format!("ended by {signal} after {} of {expected} rounds", all.len()),
                });
            }
        }
    }
    progress.done();
    let pauses = nemesis.map(Nemesis::end);
    for process in &mut processes {
        let status = process
            .0
            .wait()
            .map_err(|why| Failure::system("a process could not be waited for", &why))?;
        if !status.success() {
            return Err(Failure {
                code: code::SOFTWARE,
                message: format!("a counting process failed: {status}"),
            });
        }
    }
    if all.len() != expected {
        return Err(Failure {
            code: code::SOFTWARE,
            message: format!("of {expected} rounds only {} were told", all.len()),
        });
    }
    Ok((all, pauses))
}

/// Lets the processes release what they hold and end. Those that do not are killed when they are dropped.
async fn end(processes: &mut [Process]) -> Result<(), Failure> {
    for process in &*processes {
        // One that is stopped could not act on it.
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            if let Ok(id) = i32::try_from(process.0.id()) {
                // Fails if it has ended, which is what we want.
                let _ = kill(Pid::from_raw(id), signal);
            }
        }
    }
    let clock = Clock::system()?;
    for _ in 0..END_LOOKS {
        let has_ended = |process: &mut Process| !matches!(process.0.try_wait(), Ok(None));
        if processes.iter_mut().all(has_ended) {
            break;
        }
        clock.sleep(END_PAUSE).await;
    }
    Ok(())
}

/// A process of ours, ended with us.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(plan: &Plan, process: usize, told: UnboundedSender<Round>) -> Result<Process, Failure> {
    let failed = |why| Failure::system("a counting process could not be started", &why);
    let tool = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(tool)
        .arg(WORKER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C is for us, who end them, whatever state they are in.
        .process_group(0)
        .spawn()
        .map(Process)
        .map_err(failed)?;
    // Not on the command line, where everybody could read the store's password.
    if let Some(mut input) = child.0.stdin.take() {
        input.write_all(&plan.to_line(process)).map_err(failed)?;
    }
    if let Some(lines) = child.0.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                if let Some(round) = Round::from_line(&line, process) {
                    // The receiver goes only when the tool ends.
                    let _ = told.send(round);
                }
            }
        });
    }
    Ok(child)
}
