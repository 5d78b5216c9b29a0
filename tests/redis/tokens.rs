//! The counter of tokens: what is left behind, and that tokens grow and nobody is let in wrongly, whatever happens to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::Duration;

use crate::claims::{claim, claim_for, grant, is_busy, key, queued, release};
use crate::other_holder::{OtherHolder, wait_for};
use crate::server::{RedisServer, breathe, free_port};
use leasehold::ErrorKind;
use leasehold::store::{LockMode, RedisStore, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const TOKENS: &str = "app:{leasehold}:tokens";
const MARKER: &str = "app:{leasehold}:marker";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

/// The field of the counter that grants now.
fn counter(server: &RedisServer) -> String {
    let fields = server.cli(&["HKEYS", TOKENS]);
    let mut counters = fields.lines().filter(|field| field.contains(':'));
    let counter = counters.next().unwrap().to_owned();
    assert_eq!(counters.next(), None, "one counter at a time");
    counter
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
    assert_eq!(keys, [MARKER, TOKENS]);
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
    server.cli(&["DEL", TOKENS]);
    grows("the counter is missing").await;
    server.cli(&["HSET", TOKENS, &counter(&server), "7"]);
    grows("the counter is behind").await;
    server.cli(&["FLUSHALL"]);
    grows("all is lost").await;
    server.cli(&["SWAPDB", "0", "1"]);
    grows("another database").await;
    server.cli(&["HDEL", TOKENS, &counter(&server)]);
    grows("a withdrawal").await;
    let kept: u64 = server.cli(&["PTTL", TOKENS]).parse().unwrap();
    assert!((80_000_000..=86_400_000).contains(&kept), "{kept} ms");
}

#[tokio::test]
async fn tokens_grow_faster_than_the_clock_if_grants_do() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    // Half a second ahead, as after a small step of the clock: within the skew that is allowed.
    let ahead = (held.token.number() + 500_000).to_string();
    server.cli(&["HSET", TOKENS, "last", &ahead]);
    server.cli(&["HDEL", TOKENS, &counter(&server)]);
    let next = grant(&store, &claim("a")).await;
    assert!(next.token.number() > held.token.number() + 500_000);
}

#[tokio::test]
async fn a_counter_ahead_of_the_servers_clock_goes_on() {
    let server = RedisServer::start();
    let first = store(&server).await;
    let held = grant(&first, &claim("a")).await;
    release(&first, &held).await;
    let ahead = held.token.number() + 60_000_000;
    server.cli(&["HSET", TOKENS, &counter(&server), &ahead.to_string()]);
    for store in [&first, &store(&server).await] {
        let held = grant(store, &claim("a")).await;
        assert!(
            (ahead..ahead + 9).contains(&held.token.number()),
            "{held:?}"
        );
        release(store, &held).await;
    }
}

#[tokio::test]
async fn a_counter_that_is_not_ours_is_corrupt_and_nothing_is_granted() {
    let server = RedisServer::start();
    let first = store(&server).await;
    let held = grant(&first, &claim("a")).await;
    release(&first, &held).await;
    let refused = async |store: &RedisStore| {
        let error = store.acquire(&claim("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
    };
    server.cli(&["HSET", TOKENS, &counter(&server), "nonsense"]);
    refused(&first).await;
    refused(&store(&server).await).await;
    server.cli(&["DEL", TOKENS]);
    server.cli(&["RPUSH", TOKENS, "nonsense"]);
    refused(&first).await;
    refused(&store(&server).await).await;
    assert_eq!(server.cli(&["TYPE", TOKENS]), "list");
}

#[tokio::test]
async fn a_withdrawal_without_a_doubt_keeps_the_counter_of_everybody() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let before = counter(&server);
    let waiting = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &waiting).await);
    store.withdraw(&waiting).await.unwrap();
    store.withdraw(&held.claim).await.unwrap();
    assert_eq!(counter(&server), before);
}

#[tokio::test]
async fn a_client_of_another_version_of_the_protocol_is_refused_with_both_versions() {
    let server = RedisServer::start();
    for (marker, theirs) in [
        ("v4 anything 0 30000", "4"),
        ("v2 0a0b 0 30000 durable", "2"),
        ("0a0b 0 30000 durable", "1"),
    ] {
        server.cli(&["FLUSHALL"]);
        server.cli(&["SET", MARKER, marker]);
        for query in [FRESH, "prefix=app"] {
            let store = RedisStore::connect(&server.url(query)).await.unwrap();
            for claim in [claim("a"), queued("a", LockMode::Read)] {
                let error = store.acquire(&claim).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                let versions = format!("theirs={theirs} ours=3");
                assert!(error.to_string().contains(&versions), "{error}");
            }
        }
        assert_eq!(server.cli(&["KEYS", "*"]), MARKER);
    }
    // A client without a quarantine leaves no marker, but its counter.
    server.cli(&["FLUSHALL"]);
    server.cli(&["HSET", TOKENS, "protocol", "4"]);
    let error = store(&server).await.acquire(&claim("a")).await.unwrap_err();
    assert!(error.to_string().contains("theirs=4 ours=3"), "{error}");
}

/// A proxy that connects again when the server goes, so that no client notices. Returns its port.
pub(crate) async fn redialling_proxy(server: u16) -> u16 {
    redialling_proxy_to(Arc::new(AtomicU16::new(server))).await
}

/// The same, to whichever server it is then.
async fn redialling_proxy_to(server: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, Arc::clone(&server)));
        }
    });
    port
}

async fn serve(mut client: TcpStream, server: Arc<AtomicU16>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut pending: Vec<u8> = Vec::new();
    'dial: loop {
        let Ok(mut upstream) = TcpStream::connect(("127.0.0.1", server.load(SeqCst))).await else {
            tokio::task::yield_now().await;
            continue;
        };
        if upstream
            .write_all(&std::mem::take(&mut pending))
            .await
            .is_err()
        {
            continue;
        }
        loop {
            tokio::select! {
                read = client.read(&mut up) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(count) if upstream.write_all(&up[..count]).await.is_err() => {
                        pending.extend_from_slice(&up[..count]);
                        continue 'dial;
                    }
                    Ok(_) => {}
                },
                read = upstream.read(&mut down) => match read {
                    Ok(0) | Err(_) => continue 'dial,
                    Ok(count) if client.write_all(&down[..count]).await.is_err() => return,
                    Ok(_) => {}
                },
            }
        }
    }
}

/// A restart behind such a proxy, from a snapshot that has the counter, the marker and not the lock.
async fn nobody_is_let_in_too_early_behind_a_redialling_proxy(
    arguments: &[&str],
    has_no_memory: bool,
) {
    let mut server = RedisServer::start_with(arguments);
    let port = redialling_proxy(server.port()).await;
    let url = format!("redis://127.0.0.1:{port}/0?prefix=app&max_ttl=6s");
    let asking = RedisStore::connect(&url).await.unwrap();
    let long = Duration::from_millis(5_900);
    let before = wait_for(&asking, &claim_for("before", long)).await;
    release(&asking, &before).await;
    assert_eq!(server.cli(&["SAVE"]), "OK");
    let holder = OtherHolder::holding(&asking, "a", long).await;
    if !arguments.is_empty() {
        // The log lost its last second.
        assert_eq!(server.cli(&["DEL", "app:a"]), "1");
    }
    server.restart();
    assert_eq!(server.cli(&["EXISTS", TOKENS, MARKER]), "2");
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
    if has_no_memory {
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        assert!(asking.acquire(&claim_for("other", long)).await.is_err());
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    }
    let next = wait_for(&asking, &claim_for("a", long)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_from_a_snapshot_that_a_proxy_hides_lets_nobody_in_too_early() {
    nobody_is_let_in_too_early_behind_a_redialling_proxy(&[], false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_from_a_log_of_the_second_before_that_a_proxy_hides_lets_nobody_in_too_early() {
    let every_second = ["--appendonly", "yes", "--appendfsync", "everysec"];
    nobody_is_let_in_too_early_behind_a_redialling_proxy(&every_second, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_memory_that_a_proxy_hides_lets_nobody_in_too_early() {
    nobody_is_let_in_too_early_behind_a_redialling_proxy(&[], true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_a_proxy_hides_and_that_is_promoted_later_lets_nobody_in_too_early() {
    let master = RedisServer::start();
    let port = master.port().to_string();
    let replica = RedisServer::start();
    assert_eq!(replica.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    let target = Arc::new(AtomicU16::new(master.port()));
    let proxy = redialling_proxy_to(Arc::clone(&target)).await;
    let url = format!("redis://127.0.0.1:{proxy}/0?prefix=app&max_ttl=6s");
    let [first, second] = [
        RedisStore::connect(&url).await.unwrap(),
        RedisStore::connect(&url).await.unwrap(),
    ];
    let long = Duration::from_millis(5_900);
    for store in [&first, &second] {
        let before = wait_for(store, &claim_for("before", long)).await;
        release(store, &before).await;
    }
    while master.cli(&["WAIT", "1", "100"]) != "1" {
        breathe().await;
    }
    let holder = OtherHolder::holding(&first, "a", long).await;
    target.store(replica.port(), SeqCst);
    drop(master);
    assert!(first.acquire(&claim_for("other", long)).await.is_err());
    assert_eq!(replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    // As if the hold was never copied.
    replica.cli(&["DEL", "app:a"]);
    let next = wait_for(&second, &claim_for("a", long)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_master_that_was_deposed_and_promoted_again_in_one_run_does_not_know_its_old_scripts() {
    let server = RedisServer::start();
    let first = store(&server).await;
    let held = grant(&first, &claim("a")).await;
    release(&first, &held).await;
    let before = counter(&server);
    let nobody = free_port().to_string();
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &nobody]), "OK");
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    server.cli(&["SCRIPT", "FLUSH"]);
    let next = grant(&first, &claim("a")).await;
    assert!(next.token > held.token);
    assert_ne!(counter(&server), before, "it is another incarnation");
    assert!(first.inspect(&key("a")).await.unwrap().is_some());
}
