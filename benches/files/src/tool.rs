//! A whole `leasehold run` beside a whole `flock`.

use std::process::{Command, Stdio};

use crate::{Directory, median, micros, spread};

const BLOCKS: usize = 61;

pub(crate) fn print(tool: &str, directory: &Directory) {
    let url = format!("file://{}", directory.path("locks"));
    let file = directory.path("plain");
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(words)
            .env_remove("LEASEHOLD_STORE")
            .stdin(Stdio::null());
        let before = micros();
        let status = command.status().expect("a program");
        assert!(status.success(), "{program}: {status}");
        micros() - before
    };
    let (mut ours, mut theirs, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        let one = run(tool, &["run", "--store", &url, "--lock", "x", "--", "true"]);
        let other = run("flock", &[&file, "true"]);
        if block > 0 {
            ours.push(one);
            theirs.push(other);
            more.push(one - other);
        }
    }
    println!("a whole command that does nothing, {BLOCKS} times:");
    println!(
        "  {:34} {}",
        "leasehold run --lock x -- true",
        spread(&mut ours)
    );
    println!("  {:34} {}", "flock x true", spread(&mut theirs));
    println!("  {:34} {:8.1} ms", "difference", median(&mut more) / 1e3);
}
