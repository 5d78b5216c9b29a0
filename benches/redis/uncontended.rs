//! Acquire and release of a free lock.

use leasehold::LockManager;
use leasehold::store::RedisStore;

use crate::blocks::{compare, timed};
use crate::server::RedisServer;
use crate::{raw, runtime};

const ROUNDS: u32 = 300;

pub(crate) fn run() {
    let server = RedisServer::start();
    let url = server.url("restart_quarantine=off");
    let runtime = runtime();
    let mut connection = runtime.block_on(raw::connect(server.port()));
    let acquire = runtime.block_on(raw::load(&mut connection, raw::ACQUIRE));
    let release = runtime.block_on(raw::load(&mut connection, raw::RELEASE));
    let plain = runtime.block_on(raw::load(&mut connection, raw::COMPARE_AND_DELETE));
    let store = RedisStore::connect(&url);
    let locks = LockManager::new(runtime.block_on(store).expect("a store")).expect("a manager");

    let ours = || {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..ROUNDS {
                    let guard = locks.lock("ours").acquire().await.expect("it is free");
                    drop(guard.release().await);
                }
            });
        })
        .1
    };
    let mut one = connection.clone();
    let same_scripts = || {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..ROUNDS {
                    raw::acquire(&mut one, &acquire, "floor").await;
                    raw::release(&mut one, &release, "floor").await;
                }
            });
        })
        .1
    };
    compare(
        "uncontended / the same scripts",
        Some(1.10),
        ROUNDS,
        same_scripts,
        ours,
    );

    let set_and_delete = || {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..ROUNDS {
                    raw::set(&mut connection, "plain").await;
                    raw::release(&mut connection, &plain, "plain").await;
                }
            });
        })
        .1
    };
    compare(
        "uncontended / SET NX PX + compare-and-delete",
        None,
        ROUNDS,
        set_and_delete,
        ours,
    );
}
