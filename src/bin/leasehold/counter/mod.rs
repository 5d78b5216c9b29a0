//! `leasehold counter`: many processes, one counter that nothing protects but the lock.
//!
//! ```text
//!  leasehold counter ──► leasehold __counting (one for each process) ──► lock, read, add one, write, release
//!        ▲                       │
//!        └── a line a round ─────┘
//! ```
//!
//! The counter is a file, so that it is the same for every store, and is written by the commit of a guarded run. With a
//! nemesis it is a key in Redis behind a fence: a process that is stopped between its check and its write cannot be told to
//! wait, only be refused.

mod nemesis;
mod plan;
mod progress;
mod report;
mod resource;
mod round;
mod turns;
mod way;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use leasehold::{Clock, LockManager};

pub(crate) use worker::{WORKER, worker};

use crate::args::{CounterArgs, CounterMode, NemesisKind};
use crate::exit::{Failure, code};
use crate::output::Output;
use crate::store;
use nemesis::Nemesis;
use nix::unistd::Pid;
use plan::{Plan, Until};
use progress::Progress;
use report::Report;
use resource::Place;
use round::Round;

pub(crate) async fn counter(args: &CounterArgs, output: Output) -> Result<u8, Failure> {
    let url = args.store.shared()?;
    if args.nemesis.is_some() {
        nemesis::check_url(url)?;
    }
    let ttl = args.ttl.or(args.nemesis.map(|_| nemesis::TTL));
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
            "this store has no locks of that mode; leave out --mode, or use redis://, which has all of them",
        ));
    }
    if args.mode == CounterMode::Write && args.nemesis.is_some() {
        return Err(Failure::usage(
            "--nemesis ties a fence to the lock, which --mode write does not take; leave out one of the two",
        ));
    }
    let ttl_in_force = locks.settings().ttl;
    locks.shutdown().await;

    let place = Place::make(args.nemesis.map(|_| url)).await?;
    let plan = Plan::of(args, url, ttl, place.clone());
    let clock = Clock::system()?;
    let started = clock.stamp();
    let report = match run(args, &plan, ttl_in_force) {
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
                    tasks: args.tasks as usize,
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
fn run(
    args: &CounterArgs,
    plan: &Plan,
    ttl: Duration,
) -> Result<(Vec<Round>, Option<usize>), Failure> {
    let mut processes = Vec::new();
    for process in 0..args.processes as usize {
        processes.push(start(plan, process)?);
    }
    let (told, rounds) = mpsc::channel();
    for (process, counting) in processes.iter_mut().enumerate() {
        let lines = counting.ready()?;
        let told = told.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(round) = Round::from_line(&line, process) {
                    // The receiver goes only when the tool ends.
                    let _ = told.send(round);
                }
            }
        });
    }
    drop(told);
    // Together, so that none has the lock to itself while the others connect.
    for counting in &mut processes {
        counting.go()?;
    }
    let nemesis = args.nemesis.map(|NemesisKind::Pause| {
        let ids = processes
            .iter()
            .filter_map(|process| i32::try_from(process.0.id()).ok());
        Nemesis::pause(ids.map(Pid::from_raw).collect(), ttl)
    });
    let tasks = args.processes as usize * args.tasks as usize;
    let mut progress = Progress::of(plan.until, tasks);
    let mut all = Vec::new();
    // Ends when every process has closed its end.
    for round in rounds {
        progress.one_more(round.answered());
        all.push(round);
    }
    progress.done();
    let pauses = nemesis.map(Nemesis::end);
    for mut process in processes {
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
    if let Until::Rounds(each) = plan.until
        && all.len() != tasks * each as usize
    {
        return Err(Failure {
            code: code::SOFTWARE,
            message: format!(
                "of {tasks} times {each} rounds only {} were told",
                all.len()
            ),
        });
    }
    Ok((all, pauses))
}

/// A process of ours, ended with us.
struct Process(Child);

type Lines = std::io::Lines<BufReader<ChildStdout>>;

impl Process {
    /// Waits until it is ready to count; what it tells from then on. One that ended says why on stderr, and by its status.
    fn ready(&mut self) -> Result<Lines, Failure> {
        let mut lines = BufReader::new(self.0.stdout.take().ok_or_else(not_ready)?).lines();
        match lines.next() {
            Some(Ok(line)) if line == worker::READY => Ok(lines),
            _ => Err(not_ready()),
        }
    }

    /// Lets it count.
    fn go(&mut self) -> Result<(), Failure> {
        let input = self.0.stdin.take();
        match input.map(|mut input| input.write_all(b"\n")) {
            Some(Ok(())) => Ok(()),
            _ => Err(not_ready()),
        }
    }
}

fn not_ready() -> Failure {
    Failure {
        code: code::SOFTWARE,
        message: "a counting process ended before it could count".to_owned(),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(plan: &Plan, process: usize) -> Result<Process, Failure> {
    let failed = |why| Failure::system("a counting process could not be started", &why);
    let tool = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(tool)
        .arg(WORKER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Process)
        .map_err(failed)?;
    // Not on the command line, where everybody could read the store's password.
    if let Some(input) = &mut child.0.stdin {
        input.write_all(&plan.to_line(process)).map_err(failed)?;
    }
    Ok(child)
}
