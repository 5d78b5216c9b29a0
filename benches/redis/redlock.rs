//! Winning a majority of five servers; all there, and one of them stopped.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::LockManager;
use redis::aio::MultiplexedConnection;

use crate::blocks::{Goal, compare, timed};
use crate::contended::quorum_over;
use crate::peers::Peer;
use crate::server::RedisServer;
use crate::{raw, runtime};

const ROUNDS: u32 = 100;

pub(crate) fn run(servers: &[RedisServer]) {
    let servers = &servers[..5];
    let runtime = runtime();
    let mut connections: Vec<_> = servers
        .iter()
        .map(|server| runtime.block_on(raw::connect(server.port())))
        .collect();
    let locks = LockManager::new(quorum_over(servers)).expect("a manager");

    // Only the way in is timed: what is left over of a round is ended between the rounds, on both sides.
    let ours = |connections: &mut Vec<MultiplexedConnection>| {
        let mut total = Duration::ZERO;
        for _ in 0..ROUNDS {
            let (guard, took) = timed(|| runtime.block_on(locks.lock("ours").acquire()));
            total += took;
            runtime.block_on(async {
                drop(guard.expect("a majority").release().await);
                delete(connections).await;
            });
        }
        total
    };
    let floor = |connections: &mut Vec<MultiplexedConnection>, script: Option<&str>| {
        let mut total = Duration::ZERO;
        for _ in 0..ROUNDS {
            total += timed(|| runtime.block_on(third_reply(connections, script))).1;
            runtime.block_on(delete(connections));
        }
        total
    };
    let mut both = connections.clone();
    compare(
        "majority of five / five SETs, third reply",
        Goal::AtMost(1.3),
        ROUNDS,
        || floor(&mut connections, None),
        || ours(&mut both),
    );
    if let Some(mut peer) = Peer::start("acquire", servers) {
        compare(
            "the same by rslock",
            Goal::None,
            ROUNDS,
            || floor(&mut connections, None),
            || peer.rounds(ROUNDS),
        );
    }
    let mut least = String::new();
    for connection in &mut connections {
        least = runtime.block_on(raw::load(connection, raw::SET));
    }
    compare(
        "five scripts of one SET / five SETs, third reply",
        Goal::None,
        ROUNDS,
        || floor(&mut connections, None),
        || floor(&mut both, Some(&least)),
    );
    servers[4].pause();
    // The floor asks only those that answer, which is less than what ours does.
    connections.truncate(4);
    both.truncate(4);
    compare(
        "the same, one stopped / four SETs, third reply",
        Goal::AtMost(1.35),
        ROUNDS,
        || floor(&mut connections, None),
        || ours(&mut both),
    );
    servers[4].resume();
}

/// Sends a `SET` to all, in a script if one is named, and returns with the third reply; the others are driven on.
async fn third_reply(connections: &[MultiplexedConnection], script: Option<&str>) {
    let script = script.map(str::to_owned);
    let ask = |mut connection: MultiplexedConnection| {
        let script = script.clone();
        async move {
            match script {
                None => raw::set(&mut connection, "floor").await,
                Some(hash) => raw::set_in_script(&mut connection, &hash, "floor").await,
            }
        }
    };
    let mut asked: FuturesUnordered<_> = connections.iter().cloned().map(ask).collect();
    for _ in 0..3 {
        asked.next().await.expect("a reply");
    }
    tokio::spawn(asked.for_each(|()| std::future::ready(())));
}

/// One after the other, so that whatever else was under way has had its time when it returns.
async fn delete(connections: &mut [MultiplexedConnection]) {
    for connection in connections {
        let mut delete = redis::cmd("DEL");
        let deleted: i64 = delete
            .arg("floor")
            .query_async(connection)
            .await
            .expect("a reply");
        assert!(deleted <= 1);
    }
}
