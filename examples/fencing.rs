//! A zombie: a process that is stopped between its check and its write, and continues when another
//! holds the lock.
//!
//! The same story twice, with real processes. First the zombie writes to a plain key and overwrites
//! the new holder's work; then it writes through a fence, which refuses it. The example starts its
//! own `redis-server`, which must be installed.
//!
//! ```text
//! cargo run --release --example fencing --features redis
//! ```

#[path = "../tests/support/redis.rs"]
mod server;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::redis::{RedisBatch, RedisFence, RedisStore};
use leasehold::run::{CommitPermit, EffectError};
use leasehold::{LockManager, RunError, Settings};

const BALANCE: &str = "balance";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(url), Some(how)) => zombie(&url, how == "fenced").await,
        _ => {
            let server = server::RedisServer::start();
            for how in ["plain", "fenced"] {
                play(&server, how).await?;
            }
            Ok(())
        }
    }
}

async fn manager(url: &str) -> Result<LockManager, leasehold::Error> {
    let settings = Settings {
        ttl: Duration::from_secs(1),
        ..Settings::default()
    };
    LockManager::builder(RedisStore::connect(url).await?)
        .settings(settings)
        .build()
}

async fn play(server: &server::RedisServer, how: &str) -> Result<(), Box<dyn Error>> {
    println!("{how}:");
    let url = server.url(&format!("prefix={how}&restart_quarantine=off"));
    server.cli(&["SET", BALANCE, "100"]);
    let mut zombie = Command::new(std::env::current_exe()?)
        .args([&url, how])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(zombie.stdout.take().ok_or("its output")?).lines();
    println!("  zombie: {}", lines.next().ok_or("it ended")??);
    let signal = |signal: &str| {
        Command::new("kill")
            .args([signal, &zombie.id().to_string()])
            .status()
    };
    signal("-STOP")?;
    println!("  (the zombie's process is stopped here)");

    let locks = manager(&url).await?;
    let fence = RedisFence::connect(&url).await?;
    let lock = locks.lock("account").fence(fence.clone());
    let done = lock.guarded_async(async |tx| {
        let fence = fence.clone();
        tx.commit_with(move |permit| fence.apply(permit, RedisBatch::new().set(BALANCE, "70")));
        Ok(())
    });
    let done = done.await.map_err(|error| format!("{error:?}"))?;
    println!(
        "  next holder: took 30, the balance is 70 ({:?})",
        done.proof
    );

    signal("-CONT")?;
    zombie
        .stdin
        .take()
        .ok_or("its input")?
        .write_all(b"go on\n")?;
    println!("  (and goes on)");
    for line in lines {
        println!("  zombie: {}", line?);
    }
    zombie.wait()?;
    println!("  the balance is {}\n", server.cli(&["GET", BALANCE]));
    locks.shutdown().await;
    Ok(())
}

/// Reads the balance, is stopped when it begins to commit, and writes what it computed.
async fn zombie(url: &str, is_fenced: bool) -> Result<(), Box<dyn Error>> {
    let locks = manager(url).await?;
    let fence = RedisFence::connect(url).await?;
    let mut plain = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let lock = locks.lock("account").fence(fence.clone());
    let done = lock.guarded_async(async |tx| {
        tx.commit_with(move |permit: CommitPermit| {
            println!("I hold the lock, the balance was 100, and I am about to write 90");
            // The lease was live at the last check. A process that is stopped here does not notice
            // it.
            let mut line = String::new();
            let woken = std::io::stdin().read_line(&mut line);
            async move {
                woken?;
                if is_fenced {
                    return fence
                        .apply(permit, RedisBatch::new().set(BALANCE, "90"))
                        .await;
                }
                let mut set = redis::cmd("SET");
                let written: () = set.arg(BALANCE).arg("90").query_async(&mut plain).await?;
                Ok::<_, EffectError>(written.into())
            }
        });
        Ok(())
    });
    match done.await {
        Ok(done) => println!("written ({:?})", done.proof),
        Err(RunError::Fenced { .. }) => println!("refused by the fence: nothing was written"),
        Err(RunError::CommittedLate { late_by, .. }) => {
            println!("written, but too late by {late_by:?}: the run reports it");
        }
        Err(other) => println!("{other:?}"),
    }
    Ok(())
}
