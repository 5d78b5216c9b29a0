//! A lock of any kind, and its guard.

use leasehold::election::Leadership;
use leasehold::multi::MultiGuard;
use leasehold::permits::PermitsGuard;
use leasehold::read_write::WriteGuard;
use leasehold::reentrant::{ReentrantGuard, Scope};
use leasehold::semaphore::SemaphorePermit;
use leasehold::{Error, Executor, LockGuard, LockManager};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Plain,
    Fair,
    Write,
    Reentrant,
    Multi,
    Semaphore,
    Permits,
    Election,
}

pub(crate) const ALL: [Kind; 8] = [
    Kind::Plain,
    Kind::Fair,
    Kind::Write,
    Kind::Reentrant,
    Kind::Multi,
    Kind::Semaphore,
    Kind::Permits,
    Kind::Election,
];

impl Kind {
    /// The keys that a hold of this kind has in the store.
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Multi => &["a", "b"],
            Self::Semaphore => &["a/slot-0"],
            _ => &["a"],
        }
    }
}

#[derive(Debug)]
pub(crate) enum Guard {
    Lock(LockGuard),
    Write(WriteGuard),
    Reentrant(ReentrantGuard),
    Multi(MultiGuard),
    Permit(SemaphorePermit),
    Permits(PermitsGuard),
    Leader(Leadership),
}

/// A reentrant lock is acquired in a scope of its own.
pub(crate) async fn acquire(locks: &LockManager, kind: Kind) -> Result<Guard, Error> {
    Ok(match kind {
        Kind::Plain => Guard::Lock(locks.lock("a").acquire().await?),
        Kind::Fair => Guard::Lock(locks.lock("a").fair().acquire().await?),
        Kind::Write => Guard::Write(locks.read_write("a").write().await?),
        Kind::Reentrant => Guard::Reentrant(locks.reentrant("a").acquire(&Scope::new()).await?),
        Kind::Multi => Guard::Multi(locks.lock_all(["a", "b"]).acquire().await?),
        Kind::Semaphore => Guard::Permit(locks.semaphore("a", 1).acquire().await?),
        Kind::Permits => Guard::Permits(locks.permits("a", 2).acquire_many(2).await?),
        Kind::Election => Guard::Leader(locks.election("a").campaign("us").await?),
    })
}

impl Guard {
    pub(crate) fn executor(&self) -> Executor {
        match self {
            Self::Lock(guard) => guard.executor(),
            Self::Write(guard) => guard.executor(),
            Self::Reentrant(guard) => guard.executor(),
            Self::Multi(guard) => guard.executor(),
            Self::Permit(permit) => permit.executor(),
            Self::Permits(permits) => permits.executor(),
            Self::Leader(leader) => leader.executor(),
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await.map(drop),
            Self::Write(guard) => guard.release().await.map(drop),
            Self::Reentrant(guard) => guard.release().await.map(drop),
            Self::Multi(guard) => guard.release().await.map(drop),
            Self::Permit(permit) => permit.release().await.map(drop),
            Self::Permits(permits) => permits.release().await.map(drop),
            Self::Leader(leader) => leader.resign().await.map(drop),
        }
    }
}
