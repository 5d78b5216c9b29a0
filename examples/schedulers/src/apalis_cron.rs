//! One job under `apalis-cron` on two hosts: each fire time is done by one of them.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apalis::prelude::{Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use cron::Schedule;
use leasehold::store::MemoryStore;
use leasehold::{BoxError, LockGuard, LockManager};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[path = "report.rs"]
mod report;

#[derive(Clone)]
struct Host {
    locks: LockManager,
    done: UnboundedSender<SystemTime>,
}

async fn at_its_time(tick: Tick, host: Data<Host>) -> Result<(), BoxError> {
    // The time that the schedule says, the same on every host.
    let since = Duration::from_secs(tick.get_timestamp());
    let fire_time = UNIX_EPOCH + since;
    let job = host.locks.once("report", fire_time);
    let done = host.done.clone();
    let report = async move |_: &LockGuard| done.send(fire_time);
    let _ran = job.run(report).await?;
    Ok(())
}

async fn run(name: &str, host: Host) -> Result<(), BoxError> {
    // Every second. For every night at three: "0 0 3 * * *".
    let schedule = Schedule::from_str("* * * * * *")?;
    let worker = WorkerBuilder::new(name)
        .backend(CronScheduler::new(schedule))
        .data(host)
        .build(at_its_time);
    Ok(worker.run().await?)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Hosts of yours connect to one store by its URL.
    let store = MemoryStore::new()?;
    let (done, reports) = unbounded_channel();
    let host = |store| {
        let (locks, done) = (LockManager::new(store)?, done.clone());
        Ok::<_, leasehold::Error>(Host { locks, done })
    };
    let (first, second) = (host(store.clone())?, host(store)?);
    tokio::select! {
        ended = run("host-a", first) => ended,
        ended = run("host-b", second) => ended,
        () = report::three_without_a_second(reports) => Ok(()),
    }
}
