//! A server that drops keys when its memory is full, as managed services are set by default.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::claims::{claim, grant};
use crate::restart::Reported;
use crate::server::RedisServer;
use leasehold::ErrorKind;
use leasehold::store::{Fencing, RedisStore, Renewed, Store};

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
