//! Clients that know nothing of the queue, and only poll the lock's key with `SET NX`, behind a
//! queue that never empties.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::claims::{claim, grant, is_busy, once, queued, release};
use crate::other_holder::wait_for;
use crate::server::{RedisServer, breathe};
use leasehold::LockManager;
use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Grant, LockMode, Store};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const LOCK: &str = "app:a";
const LINE: &str = "app:a{app:a}:line";

/// As if the lock was left to others for the last time so long ago (ms); in the future: for so long
/// from now on.
fn left_to_others(server: &RedisServer, ago: i64) {
    let time = server.cli(&["TIME"]);
    let seconds: i64 = time.lines().next().unwrap().parse().unwrap();
    let last = (seconds * 1_000 - ago).to_string();
    assert_eq!(server.cli(&["SET", LINE, &last, "XX", "KEEPTTL"]), "OK");
}

#[tokio::test]
async fn a_key_that_was_never_free_is_left_free_for_a_moment() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let [head, gives_up, last] =
        [LockMode::Exclusive, LockMode::Read, LockMode::Write].map(|mode| queued("a", mode));
    for waiting in [&head, &gives_up, &last] {
        assert!(is_busy(&store, waiting).await);
    }
    // The longest gap lasts 200 ms, and a busy machine may stand still for that: its beginning is
    // the release.
    left_to_others(&server, 60_000);
    let hint = store.subscribe(&head).await.unwrap();
    release(&store, &held).await;
    assert_eq!(hint.await, None, "it is told when to ask");
    let opened = server.cli(&["GET", LINE]).parse::<u64>().unwrap();
    assert!(opened > 0);

    // While it lasts nobody of the line is granted the lock, and another client is.
    store.withdraw(&gives_up).await.unwrap();
    let theirs = ["SET", LOCK, "theirs", "NX", "PX", "60000"];
    while server.cli(&theirs) != "OK" {
        // On a machine that stood still the head may hold by now.
        let holder = server.cli(&["GET", LOCK]);
        assert!(
            holder.starts_with(&head.owner.expose().to_string()),
            "{holder}"
        );
        server.cli(&["DEL", LOCK]);
    }
    for waiting in [&head, &last, &once(claim("a"))] {
        match store.acquire(waiting).await.unwrap() {
            Acquired::Busy { remaining } => assert!(remaining.is_some()),
            other => panic!("{other:?}"),
        }
    }
    server.cli(&["DEL", LOCK]);

    // After the gap the order is as before.
    let held = wait_for(&store, &head).await;
    release(&store, &held).await;
    let held = wait_for(&store, &last).await;
    release(&store, &held).await;
    assert_eq!(server.cli(&["EXISTS", LOCK]), "0");
}

/// As if the lock was left to others for the last time at the beginning of time. Turns that were
/// counted since then stay counted.
fn waited_for_long(server: &RedisServer) {
    let set = "local turns = string.match(redis.call('GET', KEYS[1]), ' %d+$') or ''
        return redis.call('SET', KEYS[1], '1' .. turns, 'KEEPTTL')";
    assert_eq!(server.cli(&["EVAL", set, "1", LINE]), "OK");
}

/// Whether the key has been left to others since.
fn was_left_to_others(server: &RedisServer) -> bool {
    server.cli(&["GET", LINE]).split(' ').next() != Some("1")
}

#[tokio::test]
async fn behind_long_turns_the_key_is_left_free_after_ten_of_them_only() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let mut held = grant(&store, &claim("a")).await;
    for turn in 0..22 {
        let next = queued("a", LockMode::Exclusive);
        assert!(is_busy(&store, &next).await);
        waited_for_long(&server);
        release(&store, &held).await;
        let is_due = [10, 20].contains(&turn);
        assert_eq!(was_left_to_others(&server), is_due, "turn {turn}");
        held = wait_for(&store, &next).await;
    }
}

#[tokio::test]
async fn a_reader_behind_a_long_turn_leaves_the_key_free_first() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let reads = queued("a", LockMode::Read);
    assert!(is_busy(&store, &reads).await);
    waited_for_long(&server);
    release(&store, &held).await;
    assert!(was_left_to_others(&server));
    let _held = wait_for(&store, &reads).await;
}

#[tokio::test]
async fn in_a_gap_nobody_of_the_line_is_granted_the_lock() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let [head, gives_up, last] =
        [LockMode::Exclusive, LockMode::Read, LockMode::Write].map(|mode| queued("a", mode));
    for waiting in [&head, &gives_up, &last] {
        assert!(is_busy(&store, waiting).await);
    }
    let mut seen = false;
    for _ in 0..50 {
        left_to_others(&server, 60_000);
        server.cli(&["DEL", LOCK]);
        // Who asks first finds that it is time for a gap.
        let answers = [
            store.acquire(&last).await.unwrap(),
            store.acquire(&once(claim("a"))).await.unwrap(),
            store.acquire(&head).await.unwrap(),
        ];
        let is_free = server.cli(&["EXISTS", LOCK]) == "0";
        if is_free {
            for answer in answers {
                let Acquired::Busy { remaining } = answer else {
                    panic!("{answer:?}");
                };
                assert!(remaining.unwrap() <= Duration::from_millis(200));
            }
            seen = true;
            break;
        }
        store.withdraw(&head).await.unwrap();
    }
    drop(held);
    assert!(seen);
}

#[tokio::test]
async fn readers_and_writers_leave_the_key_free_too() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let reads = grant(&store, &queued("a", LockMode::Read)).await;
    let writer = queued("a", LockMode::Write);
    assert!(is_busy(&store, &writer).await);
    left_to_others(&server, 60_000);
    let hint = store.subscribe(&writer).await.unwrap();
    release(&store, &reads).await;
    assert_eq!(hint.await, None, "it is told when to ask");
    let _held = wait_for(&store, &writer).await;
}

/// A client in any language, over one connection.
struct Foreign(TcpStream);

impl Foreign {
    fn ask(&mut self, command: &str) -> String {
        self.0
            .write_all(format!("{command}\r\n").as_bytes())
            .unwrap();
        let mut answer = [0; 64];
        let length = self.0.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).trim().to_owned()
    }
}

/// Another client polls, and gets in within `limit`.
async fn another_gets_in(server: &RedisServer, poll: Duration, limit: Duration) {
    let mut foreign = Foreign(TcpStream::connect(("127.0.0.1", server.port())).unwrap());
    let got_in = tokio::task::spawn_blocking(move || {
        let clock = Clock::system().unwrap();
        let ends = clock.stamp().plus(limit);
        while !ends.since(&clock.stamp()).is_zero() {
            if foreign.ask("SET app:a theirs NX PX 10000") == "+OK" {
                assert_eq!(foreign.ask("GET app:a"), "$6\r\ntheirs");
                assert_eq!(foreign.ask("DEL app:a"), ":1");
                return true;
            }
            wait_for_the_next_poll(poll);
        }
        false
    });
    assert!(
        got_in.await.unwrap(),
        "nothing in {limit:?} of polls every {poll:?}"
    );
}

/// Reads, of which each begins before the last one ends if the store lets it.
async fn read_in_turns(store: &RedisStore, mut held: Grant, ends: &AtomicBool) {
    while !ends.load(SeqCst) {
        work().await;
        let next = queued("a", LockMode::Read);
        let joined = store.acquire(&next).await.unwrap();
        release(store, &held).await;
        held = match joined {
            Acquired::Granted(held) => held,
            _ => wait_for(store, &next).await,
        };
    }
    release(store, &held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_polls_gets_in_behind_readers_that_overlap() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let held = grant(&store, &queued("a", LockMode::Read)).await;
    let ends = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn({
        let ends = Arc::clone(&ends);
        async move { read_in_turns(&store, held, &ends).await }
    });
    // After half a minute, and then in the first gap in which it polls.
    another_gets_in(&server, Duration::from_millis(20), Duration::from_secs(110)).await;
    ends.store(true, SeqCst);
    reading.await.unwrap();
}

/// Three processes of two callers who ask again at once; and a client that polls. It gets in within
/// `limit`, and they go on.
async fn gets_in(poll: Duration, limit: Duration) {
    let server = RedisServer::start();
    let (ends, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let (mut managers, mut callers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let manager = LockManager::connect(&server.url(FRESH)).await.unwrap();
        for _ in 0..2 {
            let lock = manager.lock("a").fair();
            let (ends, turns) = (Arc::clone(&ends), Arc::clone(&turns));
            callers.push(tokio::spawn(async move {
                while !ends.load(SeqCst) {
                    let guard = lock.acquire().await.unwrap();
                    turns.fetch_add(1, SeqCst);
                    work().await;
                    drop(guard.release().await);
                }
            }));
        }
        managers.push(manager);
    }
    while turns.load(SeqCst) < 20 {
        breathe().await;
    }
    another_gets_in(&server, poll, limit).await;
    let before = turns.load(SeqCst);
    while turns.load(SeqCst) < before + 20 {
        breathe().await;
    }
    ends.store(true, SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_polls_every_20_ms_gets_in_behind_a_queue_that_never_empties() {
    // As a rule after 4 s.
    gets_in(Duration::from_millis(20), Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_polls_every_100_ms_gets_in_behind_a_queue_that_never_empties() {
    // Within 36 s, unless the machine stands still in the one long gap of that time.
    gets_in(Duration::from_millis(100), Duration::from_secs(110)).await;
}

/// A hold of a caller that does something.
#[allow(clippy::disallowed_methods, reason = "the server's clock is real")]
async fn work() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[allow(
    clippy::disallowed_methods,
    reason = "another client polls in real time"
)]
fn wait_for_the_next_poll(poll: Duration) {
    std::thread::sleep(poll);
}
