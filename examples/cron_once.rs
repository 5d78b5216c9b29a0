//! Every host has the same timer, and the job is done by one of them:
//! `cargo run --features redis --example cron_once [STORE_URL]`.
//!
//! Timers of hosts are apart. A host whose timer is late would find the lock free again if the job
//! is short, and do the job a second time. So the key rests after the job until `AT_LEAST` has
//! passed since the winner got it; the others skip the job. `AT_LEAST` is longer than the timers
//! are apart, and shorter than their interval. The job must be repeatable all the same: a winner
//! that dies leaves no rest, and its lock is free after one TTL.

use std::error::Error;
use std::time::Duration;

use leasehold::LockManager;
use leasehold::clock::Clock;

const AT_LEAST: Duration = Duration::from_secs(300);
/// How far apart the timers of two hosts are here.
const APART: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let locks = LockManager::connect(&url).await?;
    let clock = Clock::system()?;
    // Two hosts, in one process here. A host of yours calls `at_its_time` from its timer.
    let first = at_its_time(&locks, "host-a").await?;
    clock.sleep(APART).await;
    let second = at_its_time(&locks, "host-b").await?;
    assert_eq!((first, second), (true, false), "once");
    locks.shutdown().await;
    Ok(())
}

/// Does the job unless another host did it just now. Returns whether it did.
async fn at_its_time(locks: &LockManager, host: &str) -> Result<bool, Box<dyn Error>> {
    let lock = locks.lock("nightly").hold_at_least(AT_LEAST);
    let Some(guard) = lock.try_acquire().await? else {
        println!("{host}: another host does it, or did it just now");
        return Ok(false);
    };
    let done = guard.guarded(|_tx| {
        println!("{host}: the job is done");
        Ok(())
    })?;
    println!("{host}: done under token {}", done.token);
    // The lock is free now, and the key rests.
    guard.release().await?;
    Ok(true)
}
