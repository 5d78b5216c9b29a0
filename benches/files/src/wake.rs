//! From a release to the guard of a waiter in another process.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use crate::{Directory, manager, micros, runtime, spread, this_program};

const ROUNDS: usize = 300;

pub(crate) fn print(directory: &Directory) {
    let path = directory.path("");
    let runtime = runtime();
    let locks = runtime.block_on(manager(&path));
    let mut waiter = this_program(&["wait", &path]);
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
}

pub(crate) fn worker(directory: &str) {
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
