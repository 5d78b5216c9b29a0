//! [`HoldMode`]: how the lock is held, from `--mode`.

use std::time::Duration;

use leasehold::read_write::{ReadWriteLock, WriteGuard};
use leasehold::{Error, Executor, Lock, LockGuard, LockManager};

use super::plan::CountPlan;
use super::resource::Resource;
use crate::args::CounterMode;

#[derive(Debug)]
pub(super) enum HoldMode {
    Lock(Lock),
    Writer(ReadWriteLock),
}

pub(super) enum HeldInMode {
    Lock(LockGuard),
    Writer(WriteGuard),
}

impl HoldMode {
    pub(super) fn of(plan: &CountPlan, locks: &LockManager, counter: &Resource) -> Self {
        match plan.mode {
            CounterMode::Exclusive => Self::Lock(counter.tie(locks.lock(&plan.lock))),
            CounterMode::Fair => Self::Lock(counter.tie(locks.lock(&plan.lock)).fair()),
            CounterMode::Write => Self::Writer(locks.read_write(&plan.lock)),
        }
    }

    pub(super) async fn hold(&self, wait: Duration) -> Result<Option<HeldInMode>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.acquire_within(wait).await?.map(HeldInMode::Lock),
            Self::Writer(lock) => lock.write_within(wait).await?.map(HeldInMode::Writer),
        })
    }
}

impl HeldInMode {
    pub(super) fn executor(&self) -> Executor {
        match self {
            Self::Lock(guard) => guard.executor(),
            Self::Writer(guard) => guard.executor(),
        }
    }

    /// The count is done, whatever the outcome of the release.
    pub(super) async fn release(self) {
        let _ = match self {
            Self::Lock(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
        };
    }
}
