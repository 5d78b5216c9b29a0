//! Sixteen tasks of one process, one lock, nothing to do under it: holds that are handed off,
//! beside holds that are each released and granted again.

use leasehold::redis::RedisStore;
use leasehold::{LockManager, Settings};

use crate::blocks::{Goal, compare, timed};
use crate::runtime;
use crate::server::RedisServer;

const TASKS: u32 = 16;
/// Of each task, in a block.
const SECTIONS: u32 = 40;

pub(crate) fn run(servers: &[RedisServer]) {
    let url = servers[0].url("");
    let runtime = runtime();
    let locks = |settings: Settings| {
        let store = runtime
            .block_on(RedisStore::connect(&url))
            .expect("a store");
        let locks = LockManager::builder(store).settings(settings);
        locks.build().expect("a manager")
    };
    let handoffs = locks(Settings::default());
    let mut each_released = Settings::default();
    each_released.handoff_count = 0;
    let each_released = locks(each_released);

    let block = |locks: &LockManager| timed(|| runtime.block_on(sections(locks))).1;
    compare(
        "hot lock, handed off / each released",
        Goal::AtMost(0.1),
        TASKS * SECTIONS,
        || block(&each_released),
        || block(&handoffs),
    );
}

async fn sections(locks: &LockManager) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let lock = locks.lock("hot");
        tasks.spawn(async move {
            for _ in 0..SECTIONS {
                let guard = lock.acquire().await.expect("its turn");
                drop(guard.release().await);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a task that ends");
    }
}
