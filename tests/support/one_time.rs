//! A one-time job on two hosts over one store.

use std::convert::Infallible;
use std::time::{Duration, UNIX_EPOCH};

use leasehold::once::{AfterDeath, JobError, JobOutcome, OneTimeJob};
use leasehold::{LockGuard, LockManager};

async fn run(job: &OneTimeJob) -> JobOutcome<()> {
    let done = async |_: &LockGuard| Ok::<_, Infallible>(());
    job.run(done).await.unwrap()
}

/// Each fire time is done once, whether it is kept as done alone or as begun too. A host that waits
/// sees that it is done, and runs it if it failed.
pub(crate) async fn each_fire_time_is_done_once(ours: &LockManager, theirs: &LockManager) {
    for (name, after_death) in [("retry", AfterDeath::Retry), ("skip", AfterDeath::Skip)] {
        let job = |locks: &LockManager, hours: u64| {
            let fire_time = UNIX_EPOCH + Duration::from_secs(3_600 * hours);
            locks.once(name, fire_time).after_death(after_death)
        };
        // Both at once.
        let (first, second) = (job(ours, 1), job(theirs, 1));
        let (one, other) = tokio::join!(run(&first), run(&second));
        let ran = [one, other];
        assert!(ran.contains(&JobOutcome::Ran(())), "{name}: {ran:?}");
        assert!(ran.contains(&JobOutcome::AlreadyDone), "{name}: {ran:?}");
        for locks in [ours, theirs] {
            assert_eq!(run(&job(locks, 1)).await, JobOutcome::AlreadyDone);
        }
        let info = ours.inspect(first.key().unwrap()).await.unwrap();
        assert!(info.is_some_and(|info| info.is_resting), "{name}");
        // The next fire time, in the middle of which another host asks for it.
        let (first, second) = (job(ours, 2), job(theirs, 2));
        let fails = first.run(async |_: &LockGuard| {
            let busy = job(theirs, 2).wait(Duration::ZERO);
            let asked = busy.run(async |_: &LockGuard| Ok::<_, Infallible>(()));
            assert!(matches!(asked.await, Err(JobError::NotRun { .. })));
            Err::<(), _>("no disk")
        });
        assert!(matches!(fails.await, Err(JobError::Failed { .. })));
        let after_failure = match after_death {
            AfterDeath::Skip => JobOutcome::AlreadyBegun,
            _ => JobOutcome::Ran(()),
        };
        assert_eq!(run(&second).await, after_failure, "{name}");
    }
}
