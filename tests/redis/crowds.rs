//! Crowds that one event could call together: a script calls some of them, and whoever is left is
//! called by the next event, or by its own poll.

use std::time::Duration;

use ::redis::Connection;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Claim, LockMode, Store};

use crate::claims::{claim_for, grant, is_busy, once, release};
use crate::server::RedisServer;

/// Longer than any of these tests, a script included that a slow machine takes a second for.
const LONG: Duration = Duration::from_secs(60);
/// How many one script calls.
const MOST: usize = 500;
const CROWD: usize = 2_000;

async fn store(server: &RedisServer) -> RedisStore {
    let url = server.url("prefix=app&restart_quarantine=off&max_ttl=1m");
    RedisStore::connect(&url).await.unwrap()
}

fn claim(mode: LockMode) -> Claim {
    let mut claim = claim_for("a", LONG);
    claim.mode = mode;
    claim.place_ttl = LONG;
    claim
}

fn count(by_hand: &mut Connection, what: &str) -> usize {
    let name = format!("app:a{{app:a}}:{what}");
    ::redis::cmd("ZCARD").arg(name).query(by_hand).unwrap()
}

fn by_hand(server: &RedisServer) -> Connection {
    let url = format!("redis://127.0.0.1:{}", server.port());
    let client = ::redis::Client::open(url).unwrap();
    client.get_connection().unwrap()
}

/// A crowd of readers behind a writer.
async fn crowd(store: &RedisStore, size: usize) -> Vec<Claim> {
    let held = grant(store, &claim(LockMode::Write)).await;
    let mut readers = Vec::new();
    for _ in 0..size {
        let reader = claim(LockMode::Read);
        assert!(is_busy(store, &reader).await);
        readers.push(reader);
    }
    release(store, &held).await;
    readers
}

#[tokio::test]
async fn no_script_calls_more_than_some_readers_and_all_are_called_within_one_poll() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut by_hand = by_hand(&server);
    let readers = crowd(&store, CROWD).await;
    let mut left = CROWD - MOST;
    assert_eq!(
        count(&mut by_hand, "queue"),
        left,
        "the release called too many"
    );
    // In the order that is the worst one: whoever asks is the last one.
    let mut asked = 0;
    for reader in readers.iter().rev() {
        if left == 0 {
            break;
        }
        asked += 1;
        let answer = store.acquire(reader).await.unwrap();
        // It is called with the others if that many are left.
        assert_eq!(matches!(answer, Acquired::Granted(_)), left <= MOST);
        left -= MOST.min(left);
        assert_eq!(count(&mut by_hand, "queue"), left);
    }
    assert_eq!(asked, CROWD / MOST - 1);
    assert_eq!(count(&mut by_hand, "readers"), CROWD);
    for reader in &readers {
        let _held = grant(&store, reader).await;
    }
}

#[tokio::test]
async fn a_reader_that_is_left_of_a_crowd_is_called_by_its_own_request_or_by_the_end_of_another() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut by_hand = by_hand(&server);
    let readers = crowd(&store, MOST + 2).await;
    assert_eq!(count(&mut by_hand, "queue"), 2);
    let _held = grant(&store, &readers[MOST]).await;
    assert_eq!(count(&mut by_hand, "queue"), 0);

    server.cli(&["FLUSHALL"]);
    let readers = crowd(&store, MOST + 2).await;
    assert_eq!(count(&mut by_hand, "queue"), 2);
    store.withdraw(&readers[0]).await.unwrap();
    assert_eq!(count(&mut by_hand, "queue"), 0);
}

#[tokio::test]
async fn no_script_tells_more_than_some_watchers() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut by_hand = by_hand(&server);
    for number in 0..CROWD {
        let owner = format!("{number:032x}");
        let mut add = ::redis::cmd("ZADD");
        add.arg("app:a{app:a}:watchers").arg(0).arg(owner);
        let () = add.query(&mut by_hand).unwrap();
    }
    for round in 1..=CROWD / MOST {
        let held = grant(&store, &claim(LockMode::Exclusive)).await;
        release(&store, &held).await;
        assert_eq!(count(&mut by_hand, "watchers"), CROWD - round * MOST);
    }
}

#[tokio::test]
async fn no_release_takes_out_more_than_some_readers_that_are_over() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut by_hand = by_hand(&server);
    let [stays, ends] = [
        grant(&store, &claim(LockMode::Read)).await,
        grant(&store, &claim(LockMode::Read)).await,
    ];
    for number in 0..CROWD {
        let owner = format!("{number:032x}");
        let mut add = ::redis::cmd("ZADD");
        add.arg("app:a{app:a}:readers").arg(1).arg(owner);
        let () = add.query(&mut by_hand).unwrap();
    }
    release(&store, &ends).await;
    assert_eq!(count(&mut by_hand, "readers"), 1 + CROWD - MOST);
    assert!(is_busy(&store, &once(claim(LockMode::Write))).await);
    release(&store, &stays).await;
    assert_eq!(server.cli(&["KEYS", "app:a*"]), "", "they go with the lock");
}

#[tokio::test]
async fn readers_that_die_make_room_for_those_that_come() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut by_hand = by_hand(&server);
    let _stays = grant(&store, &claim(LockMode::Read)).await;
    for number in 0..CROWD {
        let owner = format!("{number:032x}");
        for (what, how) in [("readers", "ZADD"), ("grants", "HSET")] {
            let mut add = ::redis::cmd(how);
            add.arg(format!("app:a{{app:a}}:{what}"));
            let add = if how == "ZADD" {
                add.arg(1).arg(owner.as_str())
            } else {
                add.arg(owner.as_str()).arg("1000000000000001 r 1 dead")
            };
            let () = add.query(&mut by_hand).unwrap();
        }
    }
    const COME: usize = 100;
    for come in 1..=COME {
        let _comes = grant(&store, &claim(LockMode::Read)).await;
        // Two leave for one that comes: few, since one script may grant to many.
        assert_eq!(count(&mut by_hand, "readers"), 1 + CROWD - come);
    }
    let grants = server.cli(&["HLEN", "app:a{app:a}:grants"]);
    assert_eq!(grants, (1 + CROWD - COME).to_string());
}

#[tokio::test]
async fn watchers_that_gave_up_make_room_for_those_that_come() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut by_hand = by_hand(&server);
    for number in 0..CROWD {
        let owner = format!("{number:032x}");
        let mut add = ::redis::cmd("ZADD");
        add.arg("app:a{app:a}:watchers").arg(1).arg(owner);
        let () = add.query(&mut by_hand).unwrap();
    }
    for round in 1..=CROWD / MOST {
        let _hint = store
            .subscribe(&once(claim(LockMode::Write)))
            .await
            .unwrap();
        assert_eq!(
            count(&mut by_hand, "watchers"),
            CROWD - round * MOST + round
        );
    }
    let _hint = store
        .subscribe(&once(claim(LockMode::Write)))
        .await
        .unwrap();
    assert_eq!(
        count(&mut by_hand, "watchers"),
        CROWD / MOST + 1,
        "they live"
    );
}
