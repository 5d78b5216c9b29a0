//! Judges histories, or prints them for other checkers.
//!
//! ```text
//! cargo run --release --manifest-path tests/proof/judge/Cargo.toml -- FILE...
//! ... -- --edn FILE      the same as Jepsen's EDN
//! ... -- --refused FILE  at least one must be refused
//! ```

use std::process::ExitCode;

use leasehold_judge::checkers::{Verdict, check};
use leasehold_judge::edn::edn;
use leasehold_judge::history::{History, read};
use leasehold_judge::operation::operations;

const USAGE: &str = "usage: [--edn | --refused] FILE...";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flags, files): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with("--"));
    let flag = flags.first().map(|flag| flag.as_str());
    if files.is_empty() || flags.len() > 1 || !matches!(flag, None | Some("--edn" | "--refused")) {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let mut histories = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|why| why.to_string());
        match text.and_then(|text| read(&text)) {
            Ok(more) => histories.extend(more),
            Err(why) => {
                eprintln!("{file}: {why}");
                return ExitCode::from(2);
            }
        }
    }
    if flag == Some("--edn") {
        histories
            .iter()
            .for_each(|history| print!("{}", edn(history)));
        return ExitCode::SUCCESS;
    }
    judged(&histories, flag == Some("--refused"))
}

fn judged(histories: &[History], must_refuse: bool) -> ExitCode {
    let (mut keys, mut all, mut right, mut refused, mut unknown) = (0, 0, 0, 0, 0);
    for history in histories {
        let by_key = match operations(history) {
            Ok(by_key) => by_key,
            Err(why) => {
                println!("{}: {why}", history.name);
                return ExitCode::from(2);
            }
        };
        let mut is_right = true;
        for (key, operations) in &by_key {
            (keys, all) = (keys + 1, all + operations.len());
            let (name, why) = match check(operations) {
                Verdict::Right => continue,
                Verdict::Wrong(why) => {
                    refused += 1;
                    ("REFUSED", why)
                }
                Verdict::Unknown(why) => {
                    unknown += 1;
                    ("UNDECIDED", why)
                }
            };
            is_right = false;
            println!("{name} {} key {key}: {why}", history.name);
            if must_refuse && refused > 0 {
                println!("judged: refused, as it must be");
                return ExitCode::SUCCESS;
            }
        }
        right += usize::from(is_right);
    }
    println!(
        "judged: {} histories, {keys} keys, {all} operations, {right} right, {refused} keys refused, {unknown} undecided",
        histories.len()
    );
    let is_good = !must_refuse && refused + unknown == 0 && all > 0;
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
