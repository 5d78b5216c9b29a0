//! `rslock` for the benchmark of Redis: `peers pair|acquire URL...`. For each line with a number it
//! does so many rounds, and prints the nanoseconds that they took.

use std::io::BufRead;
use std::time::{Duration, Instant};

use rslock::LockManager;

const TTL: Duration = Duration::from_secs(10);

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let (what, urls) = words.split_first().expect("pair or acquire, and URLs");
    let is_pair = what == "pair";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let locks = LockManager::new(urls.iter().map(String::as_str).collect());
    for line in std::io::stdin().lock().lines() {
        let rounds: u32 = line.expect("a line").parse().expect("a number");
        let mut total = Duration::ZERO;
        runtime.block_on(async {
            for _ in 0..rounds {
                let before = Instant::now();
                let lock = locks.lock("peer", TTL).await.expect("it is free");
                if !is_pair {
                    total += before.elapsed();
                }
                locks.unlock(&lock).await;
                if is_pair {
                    total += before.elapsed();
                }
            }
        });
        println!("{}", total.as_nanos());
    }
}
