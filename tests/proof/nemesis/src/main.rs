//! Real servers and real worker processes that count behind one lock, while a nemesis stops, kills
//! and cuts both.
//!
//! ```text
//! cargo run --release --manifest-path tests/proof/nemesis/Cargo.toml -- STORE [--faults 30] [--pauses 30] [--seed N]
//! ... -- STORE --history FILE           also writes what happened, for tests/proof/judge
//! ... -- soak STORE [--seconds 180]     nothing grows
//! ... -- busy STORE [--seconds 30]      leases that are lost without a fault, beside 64 busy threads per core
//! ```
//!
//! `STORE` is redis, redlock, zookeeper, postgres, files, or all.

mod busy;
mod counter;
mod crew;
mod event;
mod fault;
mod gauge;
mod history;
mod judge;
mod plan;
mod register;
mod series;
mod servers;
mod soak;
mod support;
mod worker;

use std::process::{Command, ExitCode};

use plan::StoreKind;

const USAGE: &str = "usage: [soak|busy] redis|redlock|zookeeper|postgres|files|all [--faults N] [--pauses N] [--seed N] [--seconds N] [--history FILE]";

/// The words of the command line.
#[derive(Clone)]
pub struct Options {
    pub faults: usize,
    /// Aimed pauses without a fence.
    pub pauses: usize,
    pub seed: u64,
    pub seconds: Option<u64>,
    /// Where to write the histories. That of `all` has one file for each store: its name follows.
    pub history: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, plan] = &words[..]
        && verb == "__worker"
    {
        worker::run(serde_json::from_str(plan).expect("a plan"));
        return ExitCode::SUCCESS;
    }
    let Some((task, store, options)) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if store == "all" {
        return everywhere(&words);
    }
    let Some(kind) = StoreKind::named(store) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let is_good = match task {
        "soak" => soak::run(kind, options),
        "busy" => busy::run(kind, options),
        _ => series::run(kind, options),
    };
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse(words: &[String]) -> Option<(&str, &str, Options)> {
    let mut options = Options {
        faults: 30,
        pauses: 30,
        seed: fastrand::u64(..1_000_000),
        seconds: None,
        history: None,
    };
    let (mut plain, mut words) = (Vec::new(), words.iter());
    let number = |word: Option<&String>| word?.parse::<u64>().ok();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--faults" => options.faults = number(words.next())? as usize,
            "--pauses" => options.pauses = number(words.next())? as usize,
            "--seed" => options.seed = number(words.next())?,
            "--history" => options.history = Some(words.next()?.clone()),
            "--seconds" => options.seconds = Some(number(words.next())?),
            word if word.starts_with('-') => return None,
            word => plain.push(word),
        }
    }
    match plain[..] {
        [store] => Some(("", store, options)),
        [task @ ("soak" | "busy"), store] => Some((task, store, options)),
        _ => None,
    }
}

/// Each store in a process of its own, at the same time; their reports come one after the other.
fn everywhere(words: &[String]) -> ExitCode {
    let program = std::env::current_exe().expect("this program");
    let started = StoreKind::ALL.map(|kind| {
        let mut words: Vec<_> = words.to_vec();
        for at in 0..words.len() {
            if words[at] == "all" {
                words[at] = kind.name().to_owned();
            } else if at > 0 && words[at - 1] == "--history" {
                words[at] = format!("{}.{}", words[at], kind.name());
            }
        }
        let mut command = Command::new(&program);
        let output = command.args(words).stdout(std::process::Stdio::piped());
        output.spawn().expect("this program")
    });
    let mut is_good = true;
    for child in started {
        let output = child.wait_with_output().expect("its end");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        is_good &= output.status.success();
    }
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
