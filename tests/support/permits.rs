//! Permits that two managers of one store take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::LockManager;

const SIZE: u32 = 5;
const CALLERS: u32 = 3;
const ROUNDS: u32 = 3;

/// Callers of both managers that want one, or many, have together at most what there is, all are
/// served, and nothing stays taken.
pub(crate) async fn callers_have_together_at_most_the_size(
    ours: &LockManager,
    theirs: &LockManager,
) {
    let taken = AtomicU32::new(0);
    let caller = async |locks: &LockManager, number: u32| {
        let pool = locks.permits("pool", SIZE);
        for round in 0..ROUNDS {
            let permits = 1 + (number + 2 * round) % SIZE;
            let held = pool.acquire_many_within(permits, Duration::from_secs(120));
            let held = held.await.unwrap().expect("everybody is served");
            let now = permits + taken.fetch_add(permits, Ordering::SeqCst);
            assert!(now <= SIZE, "{now} are taken");
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let done = held.guarded(|tx| Ok(tx.check()?));
            assert!(done.is_ok(), "{done:?}");
            taken.fetch_sub(permits, Ordering::SeqCst);
            held.release().await.unwrap();
        }
    };
    let callers = (0..CALLERS).flat_map(|number| [(ours, number), (theirs, number + CALLERS)]);
    join_all(callers.map(|(locks, number)| caller(locks, number))).await;
    let all = theirs.permits("pool", SIZE).acquire_many(SIZE).await;
    all.unwrap().release().await.unwrap();
}
