//! Winning a majority of five servers; all there, and one of them stopped.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::LockManager;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use crate::blocks::{Goal, compare, timed};
use crate::contended::quorum_over;
use crate::peers::Peer;
use crate::server::RedisServer;
use crate::{raw, runtime};

const ROUNDS: u32 = 100;
/// The script that a member's vote runs.
const VOTE: &str = include_str!("../../src/redis/store/scripts/acquire.lua");
const LINE: &str = include_str!("../../src/redis/store/scripts/line.lua");
const MARKER: &str = "{leasehold}:marker";

pub(crate) fn run(servers: &[RedisServer]) {
    let servers = &servers[..5];
    let runtime = runtime();
    let mut connections: Vec<_> = servers
        .iter()
        .map(|server| runtime.block_on(raw::connect(server.port())))
        .collect();
    let locks = LockManager::new(quorum_over(servers)).expect("a manager");

    // Only the way in is timed: what is left over of a round is ended between the rounds, on both
    // sides.
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
    let floor = |connections: &mut Vec<MultiplexedConnection>, scripts: Option<&[Cmd]>| {
        let mut total = Duration::ZERO;
        for _ in 0..ROUNDS {
            total += timed(|| runtime.block_on(third_reply(connections, scripts))).1;
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
    for (name, scripts) in [
        (
            "five scripts of one SET / five SETs, third reply",
            runtime.block_on(sets_in_scripts(&mut connections)),
        ),
        (
            "five scripts of a vote by hand / the same",
            runtime.block_on(votes_by_hand(&mut connections)),
        ),
    ] {
        compare(
            name,
            Goal::None,
            ROUNDS,
            || floor(&mut connections, None),
            || floor(&mut both, Some(&scripts)),
        );
    }
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

/// Sends a `SET` to all, or to each its script, and returns with the third reply; the others are
/// driven on.
async fn third_reply(connections: &[MultiplexedConnection], scripts: Option<&[Cmd]>) {
    let ask = |(number, mut connection): (usize, MultiplexedConnection)| {
        let script = scripts.map(|scripts| scripts[number].clone());
        async move {
            match script {
                None => raw::set(&mut connection, "floor").await,
                Some(script) => {
                    let answer: Value = script.query_async(&mut connection).await.expect("granted");
                    let is_vote = matches!(&answer, Value::BulkString(words) if words.starts_with(b"granted"));
                    assert!(is_vote || answer == Value::Okay, "{answer:?}");
                }
            }
        }
    };
    let mut asked: FuturesUnordered<_> = connections.iter().cloned().enumerate().map(ask).collect();
    for _ in 0..3 {
        asked.next().await.expect("a reply");
    }
    tokio::spawn(asked.for_each(|()| std::future::ready(())));
}

/// The least that a vote in a script can be.
async fn sets_in_scripts(connections: &mut [MultiplexedConnection]) -> Vec<Cmd> {
    let mut scripts = Vec::new();
    for connection in connections {
        let mut command = redis::cmd("EVALSHA");
        let hash = raw::load(connection, raw::SET).await;
        command.arg(hash).arg(1).arg("floor").arg(raw::OWNER);
        command.arg("10000");
        scripts.push(command);
    }
    scripts
}

/// What our members' servers execute for a vote, asked for without anything of ours. They were
/// judged by now.
async fn votes_by_hand(connections: &mut [MultiplexedConnection]) -> Vec<Cmd> {
    let mut votes = Vec::new();
    for connection in connections {
        let mark = redis::cmd("GET").arg(MARKER).query_async(connection).await;
        let mark: String = mark.expect("a vote of ours had the server judged");
        let hash = raw::load(connection, &VOTE.replace("--@line\n", LINE)).await;
        let mut vote = redis::cmd("EVALSHA");
        vote.arg(hash).arg(5).arg("floor").arg("floor{floor}:line");
        vote.arg(MARKER).arg("floor{floor}:gone:by-hand");
        vote.arg("{leasehold}:token");
        vote.arg(format!("{} x a-host:4242", raw::OWNER))
            .arg(10_000);
        // No place, and the time is the token, as nearly always.
        vote.arg(mark).arg(0).arg("1700000000000").arg("0");
        votes.push(vote);
    }
    votes
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
