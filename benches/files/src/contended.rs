//! Four processes that take one lock again and again.

use std::io::{Read, Write};

use crate::{Directory, manager, median, micros, runtime, sqlite, sqlite_pair, this_program};

const PROCESSES: usize = 4;
const BLOCKS: usize = 9;
/// How long a block lasts, in microseconds.
const BLOCK: f64 = 400_000.0;

pub(crate) fn print(directory: &Directory) {
    let names = ["leasehold", "sqlite"];
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..BLOCKS {
        for (name, rates) in names.iter().zip(&mut rates) {
            rates.push(rate(name, directory));
        }
    }
    let mut ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(a, b)| a / b).collect();
    println!("holds a second of {PROCESSES} processes on one key, {BLOCKS} blocks:");
    for (name, rates) in names.iter().zip(&mut rates) {
        println!("  {name:34} {:8.0}", median(rates));
    }
    println!("  {:34} {:8.2}", "ratio", median(&mut ratios));
}

fn rate(what: &str, directory: &Directory) -> f64 {
    let path = directory.path("");
    let words = ["contend", what, &path];
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| this_program(&words)).collect();
    for process in &mut processes {
        let mut ready = [0];
        let stdout = process.stdout.as_mut().expect("a pipe");
        stdout
            .read_exact(&mut ready)
            .expect("a process that is ready");
    }
    for process in &mut processes {
        let stdin = process.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"g").expect("a process that waits");
    }
    let mut holds = 0.0;
    for process in processes {
        let output = process.wait_with_output().expect("its end");
        let count = String::from_utf8(output.stdout).expect("a number");
        holds += count.trim().parse::<f64>().expect("a number");
    }
    holds / (BLOCK / 1e6)
}

pub(crate) fn worker(what: &str, directory: &str) {
    let runtime = runtime();
    let mut work: Box<dyn FnMut()> = if what == "sqlite" {
        let database = sqlite(directory);
        Box::new(move || sqlite_pair(&database))
    } else {
        let locks = runtime.block_on(manager(directory));
        let runtime = &runtime;
        Box::new(move || {
            runtime.block_on(async {
                let guard = locks.lock("a").acquire().await.expect("its turn");
                let _ = guard.release().await;
            });
        })
    };
    print!("r");
    std::io::stdout().flush().expect("a pipe");
    let mut go = [0];
    std::io::stdin().read_exact(&mut go).expect("a pipe");
    let (end, mut holds) = (micros() + BLOCK, 0_u32);
    while micros() < end {
        work();
        holds += 1;
    }
    println!("{holds}");
}
