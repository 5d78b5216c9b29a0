//! A whole `leasehold run` beside a whole `flock`, and how long the lock of a killed one stays.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::Key;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Directory, manager, median, micros, runtime, spread};

const BLOCKS: usize = 61;
const DEATHS: usize = 41;

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

/// From `kill -9` of the tool and of its command to the guard of a waiter in another process.
pub(crate) fn print_deaths(tool: &str, directory: &Directory) {
    let path = directory.path("");
    let url = format!("file://{path}/locks");
    let script = "echo $$; exec sleep 1000";
    let words = [
        "run", "--store", &url, "--lock", "killed", "--", "sh", "-c", script,
    ];
    let runtime = runtime();
    let locks = runtime.block_on(manager(&path));
    let mut figures = Vec::new();
    for _ in 0..DEATHS {
        let mut held = Command::new(tool)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a program");
        let mut line = String::new();
        BufReader::new(held.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("the command's number");
        let command = Pid::from_raw(line.trim().parse().expect("a number")).expect("a process");
        runtime.block_on(async {
            let lock = locks.lock("killed");
            let waiter = tokio::spawn(async move { lock.acquire().await });
            let key = Key::parse("killed").expect("a key");
            loop {
                let info = locks.inspect(&key).await.expect("an answer");
                if info.and_then(|info| info.queue) == Some(1) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // It subscribes after it has its place.
            tokio::time::sleep(Duration::from_millis(30)).await;
            let before = micros();
            held.kill().expect("a process");
            // Its parent may have taken it along.
            let _ = kill_process(command, Signal::KILL);
            let guard = waiter.await.expect("no panic").expect("its turn");
            figures.push(micros() - before);
            let _ = guard.release().await;
        });
        held.wait().expect("its end");
    }
    println!("from kill -9 of the tool and its command to a waiter's guard, {DEATHS} times:");
    let longest = figures.iter().copied().fold(0.0, f64::max) / 1e3;
    println!(
        "  {:34} {}, at most {longest:.1} ms",
        "leasehold run",
        spread(&mut figures)
    );
}
