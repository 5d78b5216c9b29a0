//! One job under `tokio-cron-scheduler` on two hosts: each fire time is done by one of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::store::MemoryStore;
use leasehold::{BoxError, LockGuard, LockManager};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_cron_scheduler::{Job, JobScheduler};

#[path = "report.rs"]
mod report;

/// The scheduler passes no time. So this is the time for which the timer
/// was planned: the nearest second, of a schedule of whole seconds.
fn planned(fired: SystemTime) -> SystemTime {
    let since = fired.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nearest = since + Duration::from_millis(500);
    UNIX_EPOCH + Duration::from_secs(nearest.as_secs())
}

async fn at_its_time(
    locks: LockManager,
    done: UnboundedSender<SystemTime>,
) -> Result<(), BoxError> {
    let fire_time = planned(SystemTime::now());
    let job = locks.once("report", fire_time);
    let report = async move |_: &LockGuard| done.send(fire_time);
    let _ran = job.run(report).await?;
    Ok(())
}

async fn host(
    locks: LockManager,
    done: UnboundedSender<SystemTime>,
) -> Result<JobScheduler, BoxError> {
    let scheduler = JobScheduler::new().await?;
    // Every second. For every night at three: "0 0 3 * * *".
    let job = Job::new_async("* * * * * *", move |_id, _scheduler| {
        let (locks, done) = (locks.clone(), done.clone());
        Box::pin(async move {
            if let Err(error) = at_its_time(locks, done).await {
                eprintln!("{error}");
            }
        })
    })?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    Ok(scheduler)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Hosts of yours connect to one store by its URL.
    let store = MemoryStore::new()?;
    let managers = [LockManager::new(store.clone())?, LockManager::new(store)?];
    let (done, reports) = unbounded_channel();
    let [first, second] = managers;
    let mut hosts = [host(first, done.clone()).await?, host(second, done).await?];
    report::three_without_a_second(reports).await;
    for host in &mut hosts {
        host.shutdown().await?;
    }
    Ok(())
}
