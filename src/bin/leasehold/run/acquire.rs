//! From the options of a lock to what is held.

use std::time::Duration;

use leasehold::{ErrorKind, LockManager};

use super::held::Held;
use crate::args::{LockArgs, StoreArgs, Wait};
use crate::exit::{Failure, code};
use crate::output::span;

/// A wait without an end is made of these. Between two of them the place in a queue is lost, once a day.
const LONG_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Acquires what the options name, within their wait.
pub(super) async fn acquire(
    locks: &LockManager,
    store: &StoreArgs,
    args: &LockArgs,
) -> Result<Held, Failure> {
    let wait = match args.wait {
        Some(Wait::Forever) => loop {
            if let Some(held) = acquire_within(locks, args, LONG_WAIT).await? {
                return Ok(held);
            }
        },
        Some(Wait::Within(wait)) => wait,
        None => locks.settings().wait,
    };
    match acquire_within(locks, args, wait).await {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(busy(locks, store, args, wait).await),
        Err(error) if error.kind() == ErrorKind::Contended => {
            Err(busy(locks, store, args, wait).await)
        }
        Err(error) => Err(error.into()),
    }
}

async fn acquire_within(
    locks: &LockManager,
    args: &LockArgs,
    wait: Duration,
) -> Result<Option<Held>, leasehold::Error> {
    let is_one_try = wait.is_zero();
    if let [_, _, ..] = &args.lock[..] {
        let all = locks.lock_all(&args.lock);
        let guard = if is_one_try {
            all.try_acquire().await?
        } else {
            all.acquire_within(wait).await?
        };
        return Ok(guard.map(Held::All));
    }
    let key = &args.lock[0];
    Ok(if args.shared {
        let lock = locks.read_write(key);
        let guard = if is_one_try {
            lock.try_read().await?
        } else {
            lock.read_within(wait).await?
        };
        guard.map(Held::Shared)
    } else if args.write {
        let lock = locks.read_write(key);
        let guard = if is_one_try {
            lock.try_write().await?
        } else {
            lock.write_within(wait).await?
        };
        guard.map(Held::Written)
    } else if let Some(slots) = args.slots {
        let slots = locks.semaphore(key, slots);
        let permit = if is_one_try {
            slots.try_acquire().await?
        } else {
            slots.acquire_within(wait).await?
        };
        permit.map(Held::Slot)
    } else {
        let mut lock = locks.lock(key);
        if let Some(at_least) = args.at_least {
            lock = lock.hold_at_least(at_least);
        }
        let guard = if is_one_try {
            lock.try_acquire().await?
        } else {
            lock.acquire_within(wait).await?
        };
        guard.map(Held::Alone)
    })
}

async fn busy(locks: &LockManager, store: &StoreArgs, args: &LockArgs, wait: Duration) -> Failure {
    let mut holders = String::new();
    for key in &args.lock {
        // For the message only: a failure here does not change the outcome.
        let Ok(Some(info)) = locks.inspect(key).await else {
            continue;
        };
        if let Some(label) = info.label {
            holders += &format!(" holder={label}");
        }
        if let Some(held_for) = info.held_for {
            holders += &format!(" held_for={}", span(held_for));
        }
        if let Some(remaining) = info.remaining {
            let what = if info.is_resting {
                "rests"
            } else {
                "remaining"
            };
            holders += &format!(" {what}={}", span(remaining));
        }
        if let Some(queue) = info.queue {
            holders += &format!(" queue={queue}");
        }
    }
    Failure {
        code: code::NOT_ACQUIRED,
        message: format!(
            "the lock was not acquired: key={} wait={}{holders}{}; try later, or wait longer",
            args.keys(),
            span(wait),
            store.directory(),
        ),
    }
}
