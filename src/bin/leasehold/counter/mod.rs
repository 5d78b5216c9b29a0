//! `leasehold counter`: many processes, one counter that nothing protects but the lock.
//!
//! ```text
//!  leasehold counter ──► leasehold __count (one for each process) ──► lock, read, add one, write, release
//!        ▲                       │
//!        └── a line a round ─────┘
//! ```
//!
//! The counter is a file, so that it is the same for every store. It is written by the commit of a guarded run.

mod file;
mod plan;
mod progress;
mod report;
mod round;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use leasehold::{Clock, LockManager};

pub(crate) use worker::{WORKER, worker};

use crate::args::CounterArgs;
use crate::exit::{Failure, code};
use crate::output::Output;
use crate::store;
use file::CounterFile;
use plan::Plan;
use progress::Progress;
use report::Report;
use round::Round;

pub(crate) async fn counter(args: &CounterArgs, output: Output) -> Result<u8, Failure> {
    let url = args.store.shared()?;
    // One look, so that a store which cannot be reached is told once and not by every process.
    let settings = store::settings(args.ttl, Some(args.wait));
    let locks = LockManager::builder_at(url, settings).await?.build()?;
    locks.inspect(&args.lock).await?;
    locks.shutdown().await;

    let counter = CounterFile::create()?;
    let plan = Plan::of(args, url, counter.path());
    let clock = Clock::system()?;
    let started = clock.stamp();
    let rounds = run(args, &plan)?;
    let report = Report {
        took: clock.stamp().since(&started),
        counted: counter.read()?,
        rounds,
        processes: args.processes as usize,
    };
    output.answer(report.people(), &report.scripts());
    Ok(if report.lost() == 0 {
        code::DONE
    } else {
        code::NO
    })
}

/// Every round of every process, in the order in which they came.
fn run(args: &CounterArgs, plan: &Plan) -> Result<Vec<Round>, Failure> {
    let (told, rounds) = mpsc::channel();
    let mut processes = Vec::new();
    for process in 0..args.processes as usize {
        processes.push(start(plan, process, told.clone())?);
    }
    drop(told);
    let expected = args.processes as usize * args.tasks as usize * args.rounds as usize;
    let mut progress = Progress::of(expected);
    let mut all = Vec::with_capacity(expected.min(1 << 20));
    // Ends when every process has closed its end.
    for round in rounds {
        progress.one_more();
        all.push(round);
    }
    progress.done();
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
    if all.len() != expected {
        return Err(Failure {
            code: code::SOFTWARE,
            message: format!("of {expected} rounds only {} were told", all.len()),
        });
    }
    Ok(all)
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

fn start(plan: &Plan, process: usize, told: mpsc::Sender<Round>) -> Result<Process, Failure> {
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
