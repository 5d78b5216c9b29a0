//! Three hosts have the same schedule, and each fire time is done once:
//! `cargo run --example once [STORE_URL]`.
//!
//! The fire time is a part of the job's key, and the key rests after the job. A host whose timer is
//! late finds it resting, however short the job was. `after_death` decides what becomes of a job
//! whose host died: another host repeats it (the default, for jobs that can be repeated), or nobody
//! does.

use std::time::{Duration, SystemTime};

use leasehold::clock::Clock;
use leasehold::once::JobOutcome;
use leasehold::{BoxError, LockGuard, LockManager};

/// How far apart the timers of two hosts are here.
const APART: Duration = Duration::from_millis(50);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let locks = LockManager::connect(&url).await?;
    let clock = Clock::system()?;
    // A scheduler passes the time that it planned. Here it is the current one, so that this program
    // can be run again on one store.
    #[allow(clippy::disallowed_methods, reason = "no lease is measured by it")]
    let first = SystemTime::now();
    let mut tasks = Vec::new();
    for host in ["host-a", "host-b", "host-c"] {
        let (locks, clock) = (locks.clone(), clock.clone());
        // A task of its own for each host. In a spawned task the job owns what it uses.
        tasks.push(tokio::spawn(async move {
            let mut ran = 0;
            for night in 0..3 {
                let fire_time = first + Duration::from_secs(24 * 60 * 60) * night;
                ran += at_its_time(&locks, fire_time, host).await?;
                clock.sleep(APART).await;
            }
            Ok::<_, BoxError>(ran)
        }));
    }
    let mut ran = 0;
    for task in tasks {
        ran += task.await??;
    }
    assert_eq!(ran, 3, "each of the three fire times once");
    locks.shutdown().await;
    Ok(())
}

/// How many times this host did the job: once or not at all.
async fn at_its_time(
    locks: &LockManager,
    fire_time: SystemTime,
    host: &'static str,
) -> Result<u32, BoxError> {
    let job = locks.once("example/report", fire_time);
    let outcome = job.run(async move |guard: &LockGuard| {
        println!("{host}: does {}", guard.key());
        Ok::<_, BoxError>(())
    });
    match outcome.await? {
        JobOutcome::Ran(()) => Ok(1),
        JobOutcome::AlreadyDone => {
            println!("{host}: {} is done already", job.key()?);
            Ok(0)
        }
        other => Err(format!("{host}: {other:?}").into()),
    }
}
