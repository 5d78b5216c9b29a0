//! What it costs to acquire a lock and to release it, on the memory store:
//! `cargo bench --bench hold`.

#[path = "support/side_by_side.rs"]
mod side_by_side;

use leasehold::LockManager;
use leasehold::store::MemoryStore;
use side_by_side::SideBySide;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let mutex = tokio::sync::Mutex::new(());
    let store = MemoryStore::new().expect("a clock");
    let locks = LockManager::new(store).expect("a manager");
    let lock = locks.lock("a");

    let mut hold = SideBySide::default();
    hold.row("floor_tokio_mutex", || {
        runtime.block_on(async { drop(mutex.lock().await) });
    });
    hold.row("acquire_release", || {
        runtime.block_on(async {
            let guard = lock.acquire().await.expect("nobody else wants it");
            guard.release().await
        })
    });
    hold.run("hold");
}
