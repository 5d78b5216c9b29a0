//! One-time jobs: each fire time of a schedule is done once, on whichever host gets it first.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, UNIX_EPOCH};
//! use leasehold::once::JobOutcome;
//! use leasehold::{BoxError, LockGuard, LockManager};
//!
//! let locks = LockManager::connect("memory:").await?;
//! // From the schedule, not from this host's clock: all hosts have to
//! // pass the same.
//! let fire_time = UNIX_EPOCH + Duration::from_secs(1_795_662_000);
//! let invoices = locks.once("invoices", fire_time);
//!
//! // Every host calls this at its time.
//! let run = || invoices.run(async |_guard: &LockGuard| {
//!     println!("sent");
//!     Ok::<_, BoxError>(7)
//! });
//! assert_eq!(run().await?, JobOutcome::Ran(7));
//! assert_eq!(run().await?, JobOutcome::AlreadyDone);
//! # Ok(())
//! # }
//! ```
//!
//! A lock alone runs such a job twice: the timers of hosts are apart, and a short job is over
//! before the second timer fires. Here the fire time is a part of the key, and the key
//! [rests](Lock::hold_at_least) after its job. A host that comes late finds it resting, whatever
//! its clock says, and the next fire time has a key of its own. [The guide](crate::docs::once) has
//! the details, and shows which value of a scheduler is the fire time.

use std::time::{Duration, SystemTime};

use crate::clock::Stamp;
use crate::fence::{Fence, erase};
use crate::manager::{LockGuard, LockManager};
use crate::model::error::Error;
use crate::model::fire_time::FireTime;
use crate::model::key::Key;
use crate::recipes::lock::Lock;
pub use crate::recipes::once_outcome::{JobError, JobOutcome};

/// For how long a fire time stays done.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// What becomes of a fire time whose host died in the middle of the job. All hosts have to choose
/// the same: one that retries does not ask whether another one has begun.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum AfterDeath {
    /// Another host may run the job again, when the TTL of the dead one is over: **at least once**,
    /// as long as hosts try. The job has to be repeatable.
    #[default]
    Retry,
    /// No other host runs it: **at most once**. Before the job, the host records that it has begun.
    /// A job that failed is not run again either, and one whose host died before its first step is
    /// not run at all.
    Skip,
}

/// One fire time of a schedule, and how to run its job once. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "no job runs until run is called"]
#[doc(alias = "cron")]
#[doc(alias = "idempotency")]
pub struct OneTimeJob {
    manager: LockManager,
    /// Rests when the job is done.
    lock: Lock,
    /// Rests when the job has begun, if it must not begin again.
    begun: Lock,
    after_death: AfterDeath,
    failure_counts: bool,
    wait: Duration,
}

/// What a host finds.
enum Found {
    /// The job is this host's to run.
    Open(LockGuard),
    Done,
    Begun,
}

impl LockManager {
    /// The job of one fire time. Its key is `NAME/2026-11-26T03:00:00Z`: the name, and the second
    /// of the fire time in UTC.
    ///
    /// The fire time is what the schedule says, which is the same on every host: not the time at
    /// which a timer fired.
    ///
    /// A malformed name, and a time before 1970 or after 9999, are errors of every later call.
    pub fn once<K>(&self, name: K, fire_time: impl Into<SystemTime>) -> OneTimeJob
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = name.try_into().map_err(Into::into).and_then(|name| {
            let time = FireTime::of(fire_time.into())?;
            Key::parse(&format!("{name}/{time}"))
        });
        let begun = key
            .clone()
            .and_then(|key| Key::parse(&format!("{key}/begun")));
        OneTimeJob {
            lock: self.lock_of(key),
            begun: self.lock_of(begun),
            manager: self.clone(),
            after_death: AfterDeath::default(),
            failure_counts: false,
            wait: self.settings().wait,
        }
        .keep(KEEP)
    }
}

impl OneTimeJob {
    /// For how long the fire time stays done, from the end of the job. Default one day; more than
    /// 0, at most 30 days.
    ///
    /// It has to be longer than the hosts may be apart. With [`AfterDeath::Skip`] it also counts
    /// from the begin of the job, so it has to be longer than the job too.
    pub fn keep(self, keep: Duration) -> Self {
        self.each(|lock| lock.rests_after_work(keep))
    }

    /// What becomes of a job whose host died. Default [`AfterDeath::Retry`].
    pub fn after_death(self, after_death: AfterDeath) -> Self {
        Self {
            after_death,
            ..self
        }
    }

    /// A job that returned an error counts as done too. Without this the next host runs it again.
    pub fn failure_counts(self) -> Self {
        Self {
            failure_counts: true,
            ..self
        }
    }

    /// Uses this TTL instead of the manager's: for how long a host that died keeps the others from
    /// a retry.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.ttl(ttl))
    }

    /// Ties a fence to the fire time's key, as [`Lock::fence`]: a host that lost its lease in the
    /// middle of the job writes nothing after the host that repeats it has begun.
    pub fn fence(self, fence: impl Fence) -> Self {
        let lock = self.lock.behind(erase(fence));
        Self { lock, ..self }
    }

    /// How long to wait for a host that runs the job now, instead of the manager's
    /// [`wait`](crate::Settings::wait). Zero: try once.
    ///
    /// A host that waits for longer than the job takes replaces a host that died.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The key that rests when the job is done. [`revoke`](LockManager::revoke) with
    /// [`Revoke::Now`](crate::store::Revoke::Now) ends the rest, and the job may run again. With
    /// [`AfterDeath::Skip`] it may when the key `KEY/begun` is revoked too.
    ///
    /// # Errors
    ///
    /// `Invalid` for a malformed name or a fire time that is out of range.
    pub fn key(&self) -> Result<&Key, Error> {
        self.lock.key()
    }

    /// Runs the job, unless this fire time is done. While another host runs it, it waits for that
    /// one's end, and runs the job only if it is not done then.
    ///
    /// The job gets the guard, for [guarded](LockGuard::guarded) runs, its token and
    /// [`lost`](LockGuard::lost). When it returns `Ok`, one step releases the lock and begins the
    /// rest by which other hosts see that it is done. The job is not dropped when its lease is
    /// lost: it runs to its end, and then its result is in [`JobError::NotRecorded`].
    ///
    /// The end of the job wakes whoever waits for it. Where that message is lost, a waiter notices
    /// it when it asks again, after
    /// [`max_poll_interval`](crate::Settings::max_poll_interval) at most, or later behind many
    /// others: that setting says when. Of those that wait in one process, one asks the store for
    /// all. If that one is no job, but a caller of [`lock`](LockManager::lock) with the
    /// [key](Self::key) of this fire time, it waits for the end of the rest: the jobs behind it
    /// notice nothing before its wait is over. So leave that key to jobs.
    ///
    /// Not promised: exactly once. The job and the record of it are two steps, and a host may die
    /// between them. Data behind a [fence](Self::fence), or a job that can be repeated, close that
    /// gap. A store that loses its locks forgets what is done: see
    /// [rests](crate::docs::stores#capabilities).
    ///
    /// # Errors
    ///
    /// [`JobError::NotRun`] if the lock was not acquired: `Contended` if another host ran the job
    /// for all of the wait, `Unsupported` on a store without rests (ZooKeeper, Redlock,
    /// Kubernetes), otherwise as [`Lock::acquire`]. With [`AfterDeath::Skip`] also if the store did
    /// not confirm that the job has begun: no host may run it then. [`JobError::Failed`] as the job
    /// failed. [`JobError::NotRecorded`] if it ran, and another host may run it again.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the job begins, or while it runs: the job is dropped, the lock is released in
    /// the background, and the job does not count as done; with [`AfterDeath::Skip`] it may be
    /// recorded as begun, and is not run again then. Dropped after it: the job counts as done.
    pub async fn run<T, E>(
        &self,
        job: impl AsyncFnOnce(&LockGuard) -> Result<T, E>,
    ) -> Result<JobOutcome<T>, JobError<T, E>> {
        let guard = match self.find().await {
            Ok(Found::Open(guard)) => guard,
            Ok(Found::Done) => return Ok(JobOutcome::AlreadyDone),
            Ok(Found::Begun) => return Ok(JobOutcome::AlreadyBegun),
            Err(why) => return Err(JobError::NotRun { why }),
        };
        let result = job(&guard).await;
        if result.is_err() && !self.failure_counts {
            let _ = guard.release().await;
        } else if let Err(why) = guard.release_as_done().await {
            return Err(JobError::NotRecorded { result, why });
        }
        result
            .map(JobOutcome::Ran)
            .map_err(|why| JobError::Failed { why })
    }

    async fn find(&self) -> Result<Found, Error> {
        let began = self.manager.handle.context().clock().stamp();
        let Some(guard) = self.unless_it_rests(&self.lock, &began).await? else {
            return Ok(Found::Done);
        };
        let is_open = match self.after_death {
            AfterDeath::Retry => Ok(true),
            AfterDeath::Skip => self.begin(&began).await,
        };
        if let Ok(true) = is_open {
            return Ok(Found::Open(guard));
        }
        let _ = guard.release().await;
        is_open.map(|_| Found::Begun)
    }

    /// Records that the job has begun. False if it had begun before. Only whoever got `true` runs
    /// the job, and nobody else gets it for as long as the record is kept.
    async fn begin(&self, began: &Stamp) -> Result<bool, Error> {
        let Some(guard) = self.unless_it_rests(&self.begun, began).await? else {
            return Ok(false);
        };
        let key = guard.key().clone();
        let confirmed = guard.release_as_done().await;
        confirmed.map(|()| true).map_err(|why| {
            let message = format!(
                "it is not confirmed that this job may begin, and so it does not run: key={key}; another host may find that it has begun. To run it, revoke that key at once"
            );
            Error::new(why.kind(), message).because(why).of_key(&key)
        })
    }

    /// Holds the lock, or returns `None` as soon as it is known to rest.
    async fn unless_it_rests(
        &self,
        lock: &Lock,
        began: &Stamp,
    ) -> Result<Option<LockGuard>, Error> {
        let clock = self.manager.handle.context().clock();
        let left = || self.wait.saturating_sub(clock.stamp().since(began));
        let key = lock.key()?;
        match lock.try_acquire().await {
            Ok(Some(guard)) => return Ok(Some(guard)),
            Ok(None) if self.rests(key).await => return Ok(None),
            Err(error) if left().is_zero() || !error.is_retryable() => return Err(error),
            Ok(None) | Err(_) => {}
        }
        let left = left();
        if !left.is_zero() {
            let held = lock.acquire_within(left).await?;
            if held.is_some() || self.rests(key).await {
                return Ok(held);
            }
        }
        Err(lock.contended().await)
    }

    async fn rests(&self, key: &Key) -> bool {
        let info = self.manager.inspect(key).await;
        matches!(info, Ok(Some(info)) if info.is_resting)
    }

    fn each(self, change: impl Fn(Lock) -> Lock) -> Self {
        Self {
            lock: change(self.lock),
            begun: change(self.begun),
            ..self
        }
    }
}
