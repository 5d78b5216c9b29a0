//! Acquire and release of a free lock.

use leasehold::LockManager;
use leasehold::store::RedisStore;

use crate::blocks::{Goal, alternate, compare, timed};
use crate::peers::Peer;
use crate::server::RedisServer;
use crate::{raw, runtime};

const ROUNDS: u32 = 300;

pub(crate) fn run(servers: &[RedisServer]) {
    let server = &servers[0];
    let runtime = runtime();
    let mut connection = runtime.block_on(raw::connect(server.port()));
    let release = runtime.block_on(raw::load(&mut connection, raw::COMPARE_AND_DELETE));
    let store = runtime.block_on(RedisStore::connect(&server.url("")));
    let locks = LockManager::new(store.expect("a store")).expect("a manager");

    let mut floor = || {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..ROUNDS {
                    raw::set(&mut connection, "floor").await;
                    raw::release(&mut connection, &release, "floor").await;
                }
            });
        })
        .1
    };
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
    let each = |took: std::time::Duration| took.as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let Some(mut peer) = Peer::start("pair", &servers[..1]) else {
        return compare(
            "acquire + release / SET NX PX + compare-and-delete",
            Goal::AtMost(1.1),
            ROUNDS,
            floor,
            ours,
        );
    };
    // All three in each block, so that they meet the same machine.
    let mut floors = Vec::new();
    let mut peers = Vec::new();
    let mut blocks = alternate(
        || {
            floors.push(each(floor()));
            floors[floors.len() - 1]
        },
        || {
            let took = each(ours());
            peers.push(each(peer.rounds(ROUNDS)));
            took
        },
    );
    blocks.print(
        "acquire + release / SET NX PX + compare-and-delete",
        Goal::AtMost(1.1),
        "us",
    );
    // The first was to warm up.
    blocks.ours = peers.split_off(1);
    blocks.print("the same by rslock", Goal::None, "us");
}
