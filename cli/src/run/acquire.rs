//! From the options of a lock to what is held.

use leasehold::{Error, ErrorKind, LockManager};

use super::held::HoldOfRun;
use crate::args::{LockArgs, StoreArgs};
use crate::exit::Failure;
use crate::wait::Wait;

/// Acquires what the options name, within the manager's wait, which is theirs.
pub(super) async fn acquire(
    locks: &LockManager,
    store: &StoreArgs,
    args: &LockArgs,
) -> Result<HoldOfRun<'static>, Failure> {
    loop {
        let error = match acquire_once(locks, args).await {
            Ok(held) => return Ok(held),
            Err(error) => error,
        };
        let is_busy = error.kind() == ErrorKind::Contended;
        if is_busy && args.wait == Some(Wait::Forever) {
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
