//! A server that drops keys when its memory is full, as managed services are set by default.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::claims::{claim, grant};
use crate::restart::Reported;
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe, until};
use leasehold::fence::Fence;
use leasehold::redis::{RedisFence, RedisStore};
use leasehold::store::{Fencing, Renewed, Store};
use leasehold::{ErrorKind, FencingToken, Key};

const EVICTING: [&str; 2] = ["--maxmemory-policy", "volatile-lru"];
const QUERY: &str = "prefix=app&restart_quarantine=off&eviction=accept";

/// Writes keys of others until the server has dropped `key`.
fn fill_until_gone(server: &RedisServer, key: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let value = "x".repeat(10_000);
    for number in 0..20_000 {
        write!(stream, "SETEX fill:{number} 600 {value}\r\n").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
        if number % 100 == 99 && server.cli(&["EXISTS", key]) == "0" {
            return;
        }
    }
    panic!("the server did not drop {key}");
}

/// A little more memory than it uses now.
fn limit_memory(server: &RedisServer) {
    let info = server.cli(&["INFO", "memory"]);
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.unwrap().trim().parse().unwrap();
    let limit = (used + 1_000_000).to_string();
    server.cli(&["CONFIG", "SET", "maxmemory", &limit]);
}

#[tokio::test]
async fn a_server_that_may_evict_is_used_if_the_url_accepts_it_and_promises_no_fencing() {
    let server = RedisServer::start_with(&EVICTING);
    limit_memory(&server);
    let refused = RedisStore::connect(&server.url("prefix=app")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let text = refused.to_string();
    for part in [
        "maxmemory-policy=volatile-lru",
        "noeviction",
        "eviction=accept",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let log = Reported::default();
    let guard = log.listen();
    let store = RedisStore::connect(&server.url(QUERY)).await.unwrap();
    let _ = grant(&store, &claim("a")).await;
    drop(guard);
    let warned = log.with("may drop locks when its memory is full");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("set maxmemory-policy=volatile-lru to noeviction"),
        "{warned:?}"
    );
    assert_eq!(store.capability().fencing, Fencing::None);
    let sound = RedisServer::start();
    let store = RedisStore::connect(&sound.url("prefix=app")).await.unwrap();
    assert_eq!(store.capability().fencing, Fencing::Monotonic);
}

#[tokio::test]
async fn a_holder_whose_lock_was_evicted_learns_it_from_its_next_renewal() {
    let server = RedisServer::start_with(&EVICTING);
    limit_memory(&server);
    let store = RedisStore::connect(&server.url(QUERY)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    fill_until_gone(&server, "app:a");
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    let _ = grant(&store, &claim("a")).await;
}

/// A key that is gone is a fence that is lowered, and a name that was never used.
#[tokio::test]
async fn a_fence_is_refused_at_a_server_that_may_evict_whatever_its_url_accepts() {
    let server = RedisServer::start_with(&EVICTING);
    let fence = RedisFence::connect(&server.url(QUERY)).await.unwrap();
    limit_memory(&server);
    let error = RedisFence::connect(&server.url(QUERY)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("noeviction"), "{error}");
    assert!(error.to_string().contains("for locks only"), "{error}");
    // One that was connected before notices it with its next connection.
    let key = Key::parse("a").unwrap();
    let token = FencingToken::new(1).unwrap();
    fence.raise(&key, token).await.unwrap();
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let refused = loop {
        match fence.raise(&key, token).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => break error,
            _ => breathe().await,
        }
    };
    assert!(refused.to_string().contains("noeviction"), "{refused}");
}

#[tokio::test]
async fn a_fence_that_would_not_wait_for_the_replicas_of_its_url_is_refused() {
    let server = RedisServer::start();
    let error = RedisFence::connect(&server.url("prefix=app&replicas=1")).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("replicas"), "{error}");
}

#[tokio::test]
async fn a_fence_at_a_server_with_a_replica_is_refused() {
    let server = RedisServer::start();
    let port = server.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    until("it is attached", async || {
        let info = server.cli(&["INFO", "replication"]);
        info.contains("connected_slaves:1")
    })
    .await;
    let error = RedisFence::connect(&server.url("prefix=app")).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("replicas"), "{error}");
}

/// A user who may not read `INFO`, with this right more.
fn url_without_info(server: &RedisServer, right: &str) -> String {
    let password = format!(">{CANARY}");
    let rules = ["~app:*", "&*", "+@all", "-@admin", "-@dangerous", right];
    let user = ["ACL", "SETUSER", "me", "on", &password];
    assert_eq!(server.cli(&[&user[..], &rules].concat()), "OK");
    let url = server.url("prefix=app&restart_quarantine=off");
    url.replace("127.0.0.1", &format!("me:{CANARY}@127.0.0.1"))
}

#[tokio::test]
async fn a_server_that_hides_its_info_and_may_evict_is_refused_by_its_configuration() {
    let server = RedisServer::start_with(&EVICTING);
    let url = url_without_info(&server, "+config|get");
    // Without a limit it drops nothing.
    RedisStore::connect(&url).await.unwrap();
    limit_memory(&server);
    let errors = [
        RedisStore::connect(&url).await.unwrap_err(),
        RedisFence::connect(&url).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("maxmemory-policy=volatile-lru"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_hides_whether_it_evicts_is_used_with_one_warning() {
    let server = RedisServer::start_with(&EVICTING);
    limit_memory(&server);
    let url = url_without_info(&server, "-config");
    let log = Reported::default();
    let listening = log.listen();
    let store = RedisStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    // Over a connection of its own.
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    let warned = || log.with("does not say whether it drops keys").len();
    assert_eq!(warned(), 1);
    let _fence = RedisFence::connect(&url).await.unwrap();
    assert_eq!(warned(), 2, "a fence warns for itself");
    drop(listening);
}
