//! What every guard that excludes can do by itself.

use leasehold::reentrant::Scope;
use leasehold::store::MemoryStore;
use leasehold::{GuardedCell, LockManager};

/// One run of each kind under a guard. What a hook borrows lives as long as the guard.
macro_rules! runs {
    ($key:literal, $guard:expr) => {{
        let undone = std::sync::Mutex::new(0);
        let (cell, guard) = (GuardedCell::for_key($key.try_into().unwrap(), 0), $guard);
        guard.guarded(|tx| Ok(*tx.write(&cell) += 1)).unwrap();
        let awaited = guard.guarded_async(async |tx| Ok(*tx.write(&cell) += 1));
        awaited.await.unwrap();
        guard.commit(async |_| Ok(())).await.unwrap();
        let failed = guard.guarded(|tx| {
            tx.undo(|| *undone.lock().unwrap() += 1);
            Err::<(), _>("no".into())
        });
        assert!(failed.is_err());
        assert_eq!((*cell.read(), *undone.lock().unwrap()), (2, 1));
    }};
}

#[tokio::test]
async fn every_guard_that_excludes_runs_work_by_itself() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    runs!("a", locks.lock("a").acquire().await.unwrap());
    runs!("b", locks.read_write("b").write().await.unwrap());
    runs!(
        "c",
        locks.reentrant("c").acquire(&Scope::new()).await.unwrap()
    );
    runs!("d", locks.lock_all(["d", "e"]).acquire().await.unwrap());
    runs!("f/slot-0", locks.semaphore("f", 1).acquire().await.unwrap());
    runs!("h", locks.permits("h", 3).acquire_many(2).await.unwrap());
    runs!("g", locks.election("g").campaign("us").await.unwrap());
    locks.shutdown().await;
}
