//! Winning a majority of five servers; all there, and one of them stopped.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::store::{Quorum, RedisOptions, RedisStore};
use leasehold::{LockManager, Settings};
use redis::aio::MultiplexedConnection;

use crate::blocks::{compare, timed};
use crate::server::RedisServer;
use crate::{raw, runtime};

const ROUNDS: u32 = 100;

pub(crate) fn run() {
    let servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    let runtime = runtime();
    let mut connections: Vec<_> = servers
        .iter()
        .map(|server| runtime.block_on(raw::connect(server.port())))
        .collect();
    let members = servers.iter().map(|server| {
        let options = RedisOptions::parse(&server.url("restart_quarantine=off&timeout_millis=500"));
        RedisStore::member(options.expect("a URL")).expect("a member")
    });
    let quorum = Quorum::new(members).expect("five members");
    let locks = LockManager::builder(quorum)
        .settings(Settings::default())
        .build()
        .expect("a manager");

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
    let floor = |connections: &mut Vec<MultiplexedConnection>, how: How<'_>| {
        let mut total = Duration::ZERO;
        for _ in 0..ROUNDS {
            total += timed(|| runtime.block_on(third_reply(connections, how))).1;
            runtime.block_on(delete(connections));
        }
        total
    };
    let mut both = connections.clone();
    compare(
        "redlock5 / five SETs, third reply",
        Some(1.15),
        ROUNDS,
        || floor(&mut connections, How::Set),
        || ours(&mut both),
    );
    let (mut script, mut least) = (String::new(), String::new());
    for connection in &mut connections {
        script = runtime.block_on(raw::load(connection, raw::ACQUIRE));
        least = runtime.block_on(raw::load(connection, raw::SET));
    }
    compare(
        "five scripts of one SET / five SETs, third reply",
        None,
        ROUNDS,
        || floor(&mut connections, How::Set),
        || floor(&mut both, How::SetInScript(&least)),
    );
    compare(
        "redlock5 / five of the same scripts, third reply",
        None,
        ROUNDS,
        || floor(&mut connections, How::Script(&script)),
        || ours(&mut both),
    );
    servers[4].pause();
    // The floor asks only those that answer, which is less than what ours does.
    connections.truncate(4);
    both.truncate(4);
    compare(
        "redlock5, one stopped / four SETs, third reply",
        Some(1.30),
        ROUNDS,
        || floor(&mut connections, How::Set),
        || ours(&mut both),
    );
    servers[4].resume();
}

/// What the floor asks of each server.
#[derive(Clone, Copy)]
enum How<'a> {
    Set,
    SetInScript(&'a str),
    Script(&'a str),
}

/// Sends all, and returns with the third reply; the others are driven on.
async fn third_reply(connections: &[MultiplexedConnection], how: How<'_>) {
    let hash = match how {
        How::Set => String::new(),
        How::SetInScript(hash) | How::Script(hash) => hash.to_owned(),
    };
    let is_least = matches!(how, How::SetInScript(_));
    let ask = |mut connection: MultiplexedConnection| {
        let hash = hash.clone();
        async move {
            match hash.as_str() {
                "" => raw::set(&mut connection, "floor").await,
                hash if is_least => raw::set_in_script(&mut connection, hash, "floor").await,
                hash => raw::acquire(&mut connection, hash, "floor").await,
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
