//! The counter of tokens: what is left behind, and that tokens grow, whatever happens to it.

use std::time::Duration;

use crate::claims::{claim, claim_for, grant, is_busy, queued, release};
use crate::other_holder::wait_for;
use crate::server::RedisServer;
use leasehold::ErrorKind;
use leasehold::redis::RedisStore;
use leasehold::store::{LockMode, Store};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const TOKEN: &str = "app:{leasehold}:token";
const MARKER: &str = "app:{leasehold}:marker";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

#[tokio::test]
async fn locks_that_nobody_holds_or_waits_for_leave_no_key() {
    let server = RedisServer::start();
    let url = server.url("prefix=app&max_ttl=6s");
    let store = RedisStore::connect(&url).await.unwrap();
    let short = Duration::from_secs(6);
    let first = wait_for(&store, &claim_for("first", short)).await;
    release(&store, &first).await;
    // `LEASEHOLD_LOCKS=100000` for the whole of it.
    let locks = std::env::var("LEASEHOLD_LOCKS").map_or(10_000, |count| count.parse().unwrap());
    for number in 0..locks {
        let held = grant(&store, &claim_for(&format!("order/{number}"), short)).await;
        release(&store, &held).await;
    }
    for mode in [LockMode::Exclusive, LockMode::Read, LockMode::Write] {
        let mut holding = queued("a", mode);
        let mut waiting = queued("a", LockMode::Write);
        (holding.ttl, waiting.ttl) = (short, short);
        let held = grant(&store, &holding).await;
        assert!(is_busy(&store, &waiting).await);
        store.withdraw(&waiting).await.unwrap();
        release(&store, &held).await;
    }
    let mut keys: Vec<_> = (server.cli(&["KEYS", "*"]).lines())
        .map(str::to_owned)
        .collect();
    keys.sort();
    assert_eq!(keys, [MARKER, TOKEN]);
}

#[tokio::test]
async fn tokens_grow_whatever_happens_to_their_counter() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut last = 0;
    let mut grows = async |what: &str| {
        let held = grant(&store, &claim("a")).await;
        let token = held.token.number();
        assert!(token > last, "{token} after {last}: {what}");
        assert!(token < 1 << 53);
        last = token;
        server.cli(&["DEL", "app:a"]);
    };
    grows("the first").await;
    grows("the next").await;
    server.cli(&["DEL", TOKEN]);
    grows("the counter is missing").await;
    server.cli(&["SET", TOKEN, "7"]);
    grows("the counter is behind").await;
    server.cli(&["FLUSHALL"]);
    grows("all is lost").await;
    server.cli(&["SWAPDB", "0", "1"]);
    grows("another database").await;
    server.cli(&["DEL", MARKER]);
    grows("the server is judged again").await;
    assert_eq!(server.cli(&["PTTL", TOKEN]), "-1");
}

#[tokio::test]
async fn a_counter_ahead_of_the_servers_clock_goes_on() {
    let server = RedisServer::start();
    let first = store(&server).await;
    let held = grant(&first, &claim("a")).await;
    release(&first, &held).await;
    let mut ahead = held.token.number() + 60_000_000;
    server.cli(&["SET", TOKEN, &ahead.to_string()]);
    for store in [&first, &store(&server).await] {
        let held = grant(store, &claim("a")).await;
        assert_eq!(held.token.number(), ahead + 1);
        release(store, &held).await;
        ahead += 1;
        // Judged again, it goes on too.
        server.cli(&["DEL", MARKER]);
        ahead += 1;
    }
}

#[tokio::test]
async fn a_counter_that_is_not_ours_is_corrupt_and_nothing_is_granted() {
    let server = RedisServer::start();
    let first = store(&server).await;
    let held = grant(&first, &claim("a")).await;
    release(&first, &held).await;
    let refused = async |store: &RedisStore| {
        for claim in [claim("a"), queued("a", LockMode::Read)] {
            let error = store.acquire(&claim).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
        }
    };
    server.cli(&["SET", TOKEN, "nonsense"]);
    refused(&first).await;
    refused(&store(&server).await).await;
    assert_eq!(server.cli(&["GET", TOKEN]), "nonsense");
    server.cli(&["DEL", TOKEN]);
    server.cli(&["RPUSH", TOKEN, "nonsense"]);
    refused(&first).await;
    refused(&store(&server).await).await;
    assert_eq!(server.cli(&["TYPE", TOKEN]), "list");
}

#[tokio::test]
async fn a_withdrawal_without_a_doubt_leaves_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let waiting = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &waiting).await);
    store.withdraw(&waiting).await.unwrap();
    store.withdraw(&held.claim).await.unwrap();
    let mut left: Vec<_> = (server.cli(&["KEYS", "*"]).lines())
        .map(str::to_owned)
        .collect();
    left.sort();
    assert_eq!(left, [MARKER, TOKEN]);
}

#[tokio::test]
async fn a_client_of_another_version_of_the_protocol_is_refused_with_both_versions() {
    let server = RedisServer::start();
    for (marker, theirs) in [
        ("v5 anything 0 30000", "5"),
        ("v3 0a0b-0c0d 0 30000", "3"),
        ("v2 0a0b 0 30000 durable", "2"),
    ] {
        server.cli(&["FLUSHALL"]);
        server.cli(&["SET", MARKER, marker]);
        for query in [FRESH, "prefix=app"] {
            let store = RedisStore::connect(&server.url(query)).await.unwrap();
            for claim in [claim("a"), queued("a", LockMode::Read)] {
                let error = store.acquire(&claim).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                let versions = format!("theirs={theirs} ours=4");
                assert!(error.to_string().contains(&versions), "{error}");
            }
        }
        assert_eq!(server.cli(&["KEYS", "*"]), MARKER);
    }
}
