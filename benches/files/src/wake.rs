//! From a release to the guard of a waiter in another process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::{Directory, manager, micros, runtime, spread, this_program};

const ROUNDS: usize = 300;

/// The floor: from the unlock of a file to the return of another process's `flock`.
fn flocked(directory: &Directory) -> Vec<f64> {
    let path = directory.path("flocked");
    let file = File::create(&path).expect("a file");
    let mut waiter = this_program(&["wait", "flock", &path]);
    let mut orders = waiter.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(waiter.stdout.take().expect("a pipe"));
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("nobody locks it");
        orders.write_all(b"g").expect("a waiter");
        pause(Duration::from_millis(4));
        let before = micros();
        rustix::fs::flock(&file, FlockOperation::Unlock).expect("it is ours");
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        figures.push(line.trim().parse::<f64>().expect("a time") - before);
    }
    drop(orders);
    waiter.wait().expect("its end");
    figures
}

fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) fn print(directory: &Directory) {
    let path = directory.path("");
    let runtime = runtime();
    let locks = runtime.block_on(manager(&path));
    let mut waiter = this_program(&["wait", "leasehold", &path]);
    let mut orders = waiter.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(waiter.stdout.take().expect("a pipe"));
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        runtime.block_on(async {
            let guard = locks.lock("wake").acquire().await.expect("it is free");
            orders.write_all(b"g").expect("a waiter");
            loop {
                let info = locks.inspect(guard.key()).await.expect("an answer");
                if info.and_then(|info| info.queue) == Some(1) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // It subscribes after it has its place.
            tokio::time::sleep(Duration::from_millis(3)).await;
            let before = micros();
            let _ = guard.release().await;
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            figures.push(line.trim().parse::<f64>().expect("a time") - before);
        });
    }
    drop(orders);
    waiter.wait().expect("its end");
    println!("from a release to the waiter's guard, {ROUNDS} times:");
    println!(
        "  {:34} {}",
        "leasehold, through managers",
        spread(&mut figures)
    );
    println!("  {:34} {}", "flock(2)", spread(&mut flocked(directory)));
}

pub(crate) fn worker(what: &str, path: &str) {
    if what == "flock" {
        wait_for_flock(path);
    } else {
        wait_for_lock(path);
    }
}

fn wait_for_flock(path: &str) {
    let file = File::open(path).expect("the file");
    let mut order = [0];
    while std::io::stdin().read_exact(&mut order).is_ok() {
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("its turn");
        println!("{}", micros());
        rustix::fs::flock(&file, FlockOperation::Unlock).expect("it is ours");
    }
}

fn wait_for_lock(directory: &str) {
    let runtime = runtime();
    let locks = runtime.block_on(manager(directory));
    let mut order = [0];
    while std::io::stdin().read_exact(&mut order).is_ok() {
        let guard = runtime.block_on(locks.lock("wake").acquire());
        let now = micros();
        println!("{now}");
        let guard = guard.expect("its turn");
        let _ = runtime.block_on(guard.release());
    }
}
