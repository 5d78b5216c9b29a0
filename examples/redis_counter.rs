//! Three processes increment one counter in Redis with a plain `GET` and a plain `SET`, a hundred
//! rounds each.
//!
//! Without a lock, rounds of different processes would read the same number, and increments would
//! be lost. With the lock the final value is the number of successful rounds. The example starts
//! its own `redis-server`, which must be installed.
//!
//! ```text
//! cargo run --release --example redis_counter --features redis
//! ```

#[path = "../tests/support/redis.rs"]
mod server;

use std::error::Error;
use std::process::{Command, Stdio};

use leasehold::redis::RedisStore;
use leasehold::{LockManager, RunError};
use redis::aio::MultiplexedConnection;

const PROCESSES: u32 = 3;
const ROUNDS: u32 = 100;
const COUNTER: &str = "counter";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(url) => count(&url).await,
        None => start_and_compare(),
    }
}

fn start_and_compare() -> Result<(), Box<dyn Error>> {
    let server = server::RedisServer::start();
    // A test server: nobody held a lock on it before.
    let url = server.url("prefix=example&restart_quarantine=off");
    println!("{PROCESSES} processes, {ROUNDS} rounds each, one counter:");
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(&url).stdout(Stdio::piped()).spawn()
        })
        .collect::<Result<_, _>>()?;

    let mut successes = 0;
    for process in processes {
        let id = process.id();
        let output = process.wait_with_output()?;
        let counted: u32 = String::from_utf8(output.stdout)?.trim().parse()?;
        println!("  process {id}: {counted} of {ROUNDS} rounds succeeded");
        successes += counted;
    }
    let value: u32 = server.cli(&["GET", COUNTER]).parse()?;
    println!("  successes: {successes}, counter: {value}");
    if value == successes {
        println!("no count was lost");
        Ok(())
    } else {
        Err(format!("the counter is {value} after {successes} successes").into())
    }
}

/// One process: prints how many of its rounds succeeded.
async fn count(url: &str) -> Result<(), Box<dyn Error>> {
    let locks = LockManager::new(RedisStore::connect(url).await?)?;
    let plain = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let lock = locks.lock("counting");
    let mut successes = 0;
    for _ in 0..ROUNDS {
        let round = lock.guarded_async(async |tx| {
            let now = read(plain.clone()).await?;
            let plain = plain.clone();
            tx.commit_with(move |_permit| async move { Ok(write(plain, now + 1).await?) });
            Ok(())
        });
        match round.await {
            // Applied, within the lease or late.
            Ok(_) | Err(RunError::CommittedLate { .. }) => successes += 1,
            Err(other) => eprintln!("a round did not count: {other:?}"),
        }
    }
    locks.shutdown().await;
    println!("{successes}");
    Ok(())
}

async fn read(mut plain: MultiplexedConnection) -> redis::RedisResult<u32> {
    let value: Option<u32> = redis::cmd("GET")
        .arg(COUNTER)
        .query_async(&mut plain)
        .await?;
    Ok(value.unwrap_or(0))
}

async fn write(mut plain: MultiplexedConnection, value: u32) -> redis::RedisResult<()> {
    redis::cmd("SET")
        .arg(COUNTER)
        .arg(value)
        .query_async(&mut plain)
        .await
}
