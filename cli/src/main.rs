//! The tool `leasehold`: runs commands only while a lock is held, and inspects the locks of a
//! store.
//!
//! It uses the library as every user does. Each subcommand is a file or a folder of its own;
//! [`exit`] defines the exit codes, [`output`] the output for people and scripts.

#![cfg_attr(not(unix), allow(unused))]

#[cfg(not(unix))]
compile_error!("the tool needs process groups and signals: build it on a Unix system");

mod args;
mod check;
mod conform;
mod counter;
mod exit;
mod fire;
mod generate;
mod itself;
mod lease_file;
mod log;
mod look;
mod output;
mod parent;
mod resolve;
mod revoke;
mod run;
mod signals;
mod sql;
mod stderr;
mod store;
mod wait;
mod watch;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use args::{Cli, Command};
use exit::{Failure, Status, code};
use output::Output;
use signals::Signals;

// The compiler's unwinder, in the program itself. Without this it is a shared library, and loading
// that takes a fifth of the time of `check`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh")]
#[allow(unsafe_code, reason = "it declares nothing that could be called")]
unsafe extern "C" {}

/// How long a hold that has ended waits for a reader of its last messages.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// More than a runtime with its signals needs, and the one of the lock manager.
const DESCRIPTORS: usize = 12;

fn main() -> ExitCode {
    // Subcommands that only the tool itself starts. They are in no help and no completion.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|word| word.to_str()) {
        Some(run::EXEC) => return run::exec(words),
        Some(counter::WORKER) => return counter::worker(),
        Some("check") => {
            if let Some(code) = check::fast(words) {
                return code;
            }
        }
        _ => {}
    }
    let cli = match Cli::try_parse_from(spoken()) {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = !error.use_stderr();
            let json = wants_json();
            let failure = if is_help {
                match output::printed(error.print()) {
                    Ok(()) => return ExitCode::from(code::DONE),
                    Err(failure) => failure,
                }
            } else if json {
                Failure::usage(error.render().to_string().trim_end())
            } else {
                // If this cannot be printed, no other message can.
                let _ = error.print();
                return ExitCode::from(code::USAGE);
            };
            Output { json }.failure(&failure);
            return ExitCode::from(failure.code);
        }
    };
    let output = Output { json: cli.json };
    let ended = dispatch(&cli, output);
    if let Err(failure) = &ended {
        output.failure(failure);
    }
    // The end of a hold shows its script that the lease is over.
    let is_waited_for = matches!(cli.command, Command::Hold(_));
    stderr::flush(is_waited_for.then_some(LAST_WORDS));
    ended.map_or_else(|failure| ExitCode::from(failure.code), Status::end)
}

/// The arguments, where `leader step-down` is another spelling of `step-down`.
fn spoken() -> Vec<OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let is_flag = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let command = 1 + words
        .iter()
        .skip(1)
        .take_while(|word| is_flag(word))
        .count();
    if words.len() > command + 1 && words[command] == "leader" && words[command + 1] == "step-down"
    {
        words.remove(command);
    }
    words
}

/// Whether `--json` was given, although the arguments could not be parsed. Words after `--` belong
/// to the command.
fn wants_json() -> bool {
    let mut words = std::env::args_os().take_while(|word| word != "--");
    words.any(|word| word == "--json")
}

fn dispatch(cli: &Cli, output: Output) -> Result<Status, Failure> {
    let command = &cli.command;
    match command {
        Command::Generate(args) => return generate::generate(args, output).map(Status::from),
        Command::Check(args) => return check::check(args, output).map(Status::from),
        Command::Sql(args) => return sql::sql(args, output).map(Status::from),
        _ => {}
    }
    output.listen(cli.verbose);
    let runtime = has_descriptors()
        .and_then(|()| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
        })
        .map_err(|why| Failure::system("no runtime could be built", &why))?;
    runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(args, output).await,
            Command::Hold(args) => run::hold(args, output).await,
            Command::Leader(args) => run::leader(args, output).await,
            Command::Counter(args) => counter::counter(args, output).await.map(Status::from),
            Command::StepDown(args) => or_a_signal(run::step_down(args, output)).await,
            Command::Revoke(args) => or_a_signal(revoke::revoke(args, output)).await,
            Command::Resolve(args) => or_a_signal(resolve::resolve(args, output)).await,
            Command::Inspect(args) => or_a_signal(look::inspect(args, output)).await,
            Command::List(args) => or_a_signal(look::list(args, output)).await,
            Command::Conform(args) => or_a_signal(conform::conform(args, output)).await,
            Command::Check(args) => check::check(args, output).map(Status::from),
            Command::Generate(args) => generate::generate(args, output).map(Status::from),
            Command::Sql(args) => sql::sql(args, output).map(Status::from),
        }
    })
}

/// Whether there are descriptors for the runtimes and their signals, which would panic without.
fn has_descriptors() -> io::Result<()> {
    let stderr = io::stderr();
    let descriptors = (0..DESCRIPTORS).map(|_| stderr.as_fd().try_clone_to_owned());
    descriptors.collect::<io::Result<Vec<_>>>().map(drop)
}

/// A subcommand that a signal ends at any point. As the first process of a container it has to
/// listen, or a signal does nothing.
async fn or_a_signal(ended: impl Future<Output = Result<u8, Failure>>) -> Result<Status, Failure> {
    let mut signals = Signals::that_end_us()?;
    tokio::select! {
        biased;
        signal = signals.ending() => Ok(Status::Signal(signal)),
        ended = ended => ended.map(Status::from),
    }
}
