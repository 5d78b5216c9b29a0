//! Acquire and release of a free lock, by one process.

use std::fs::File;

use rustix::fs::FlockOperation;

use crate::{Directory, manager, micros, runtime, spread, sqlite, sqlite_pair};

const BLOCKS: usize = 2001;
const ROUNDS: u32 = 5;

pub(crate) fn print(directory: &Directory) {
    let path = directory.path("");
    let runtime = runtime();
    let locks = runtime.block_on(manager(&path));
    let lock = locks.lock("a");
    let plain = directory.path("plain");
    File::create(&plain).expect("a file");
    let database = sqlite(&path);
    let mut ours = || {
        runtime.block_on(async {
            for _ in 0..ROUNDS {
                let guard = lock.acquire().await.expect("nobody else wants it");
                let _ = guard.release().await;
            }
        });
    };
    // Each process leaves one file, so this is as another process.
    let others = runtime.block_on(manager(&path));
    let two = [others.lock("b"), others.lock("c")];
    let mut in_turn = || {
        runtime.block_on(async {
            for round in 0..ROUNDS {
                let guard = two[round as usize % 2].acquire().await;
                let _ = guard.expect("nobody else wants it").release().await;
            }
        });
    };
    let mut flock = || {
        for _ in 0..ROUNDS {
            let file = File::options().write(true).open(&plain).expect("the file");
            rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("nobody locks it");
        }
    };
    let mut empty = || {
        for _ in 0..ROUNDS {
            database
                .execute_batch("BEGIN IMMEDIATE; COMMIT")
                .expect("the lock");
        }
    };
    let mut written = || (0..ROUNDS).for_each(|_| sqlite_pair(&database));
    let mut all: [(&str, &mut dyn FnMut(), Vec<f64>); 5] = [
        ("leasehold, through a manager", &mut ours, Vec::new()),
        ("leasehold, two locks in turn", &mut in_turn, Vec::new()),
        ("open + flock + close", &mut flock, Vec::new()),
        ("SQLite, BEGIN IMMEDIATE; COMMIT", &mut empty, Vec::new()),
        ("SQLite, with an UPDATE", &mut written, Vec::new()),
    ];
    for block in 0..=BLOCKS {
        for (_, work, figures) in &mut all {
            let before = micros();
            work();
            // The first warms up.
            if block > 0 {
                figures.push((micros() - before) / f64::from(ROUNDS));
            }
        }
    }
    println!("acquire and release of a free lock, {BLOCKS} blocks of {ROUNDS}:");
    for (name, _, figures) in &mut all {
        println!("  {name:34} {}", spread(figures));
    }
}

/// So many turns of one caller, to be counted from outside.
pub(crate) fn turns(directory: &Directory, count: u32) {
    let path = directory.path("");
    let runtime = runtime();
    let locks = runtime.block_on(manager(&path));
    let lock = locks.lock("a");
    runtime.block_on(async {
        for _ in 0..count {
            let guard = lock.acquire().await.expect("nobody else wants it");
            let _ = guard.release().await;
        }
    });
}
