//! From the options of a lock to what is held.

use leasehold::clock::Clock;
use leasehold::{Error, ErrorKind, LockManager};

use super::held::HoldOfRun;
use super::pause::pause_after;
use crate::args::{LockArgs, StoreArgs};
use crate::exit::Failure;
use crate::wait::Wait;

/// Acquires what the options name, within the manager's wait, which is theirs. A queue that is full
/// is refused at once, and is asked again until that wait is over.
pub(super) async fn acquire(
    locks: &LockManager,
    store: &StoreArgs,
    args: &LockArgs,
) -> Result<HoldOfRun<'static>, Failure> {
    let clock = Clock::system()?;
    let began = clock.stamp();
    let wait = locks.settings().wait;
    let mut refused = None;
    loop {
        let asked = acquire_once(locks, args);
        let answer = match (refused.take(), args.wait) {
            // The first one has the manager's wait.
            (None, _) | (_, Some(Wait::Forever)) => asked.await,
            (Some(before), _) => {
                let left = wait.saturating_sub(clock.stamp().since(&began));
                let answer = clock.timeout(left, asked).await;
                answer.unwrap_or(Err(before))
            }
        };
        let error = match answer {
            Ok(held) => return Ok(held),
            Err(error) => error,
        };
        let is_busy = error.kind() == ErrorKind::Contended;
        let has_time = match (args.wait, error.retry_after()) {
            (Some(Wait::Forever), _) => true,
            (_, Some(pause)) => clock.stamp().since(&began) + pause < wait,
            (_, None) => false,
        };
        if is_busy && has_time {
            pause_after(&error).await?;
            refused = Some(error);
            continue;
        }
        let mut failure = Failure::from(error);
        if is_busy {
            failure.message += &store.directory();
        }
        return Err(failure);
    }
}

async fn acquire_once(locks: &LockManager, args: &LockArgs) -> Result<HoldOfRun<'static>, Error> {
    let [key] = &args.lock[..] else {
        return locks
            .lock_all(&args.lock)
            .acquire()
            .await
            .map(HoldOfRun::All);
    };
    if args.shared {
        return locks.read_write(key).read().await.map(HoldOfRun::Shared);
    }
    if args.write {
        return locks.read_write(key).write().await.map(HoldOfRun::Written);
    }
    if let Some(slots) = args.slots {
        let slots = locks.semaphore(key, slots);
        return slots.acquire().await.map(HoldOfRun::Slot);
    }
    let mut lock = locks.lock(key);
    if let Some(at_least) = args.at_least {
        lock = lock.hold_at_least(at_least);
    }
    lock.acquire().await.map(HoldOfRun::Alone)
}
