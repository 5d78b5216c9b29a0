//! Passwords that change while locks are held.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::redis::{RedisFence, RedisOptions, RedisStore};
use leasehold::store::Store;
use leasehold::store::quorum::Quorum;
use leasehold::{ErrorKind, LockManager, Settings};

use crate::claims::{claim, grant, release};
use crate::rotation_of::{Holds, SecretFile, in_turn, manager};
use crate::server::canary::{self, CANARY};
use crate::server::cluster::RedisCluster;
use crate::server::{RedisServer, breathe, patiently, until};

const FRESH: &str = "prefix=app&restart_quarantine=off";

fn first() -> String {
    format!("{CANARY}-first")
}

fn second() -> String {
    format!("{CANARY}-second")
}

/// Gives the user `me` this password and no other.
fn set_password(server: &RedisServer, password: &str) {
    let password = format!(">{password}");
    let rules = [
        "ACL",
        "SETUSER",
        "me",
        "on",
        "resetpass",
        &password,
        "~*",
        "&*",
        "+@all",
    ];
    assert_eq!(server.cli(&rules), "OK");
}

/// Ends every connection of the user.
fn disconnect(server: &RedisServer) {
    let ended = server.cli(&["CLIENT", "KILL", "USER", "me"]);
    assert_ne!(ended, "0");
}

/// How many logins the server has refused.
fn refusals(server: &RedisServer) -> usize {
    let log = server.cli(&["ACL", "LOG"]);
    let lines: Vec<_> = log.lines().map(str::trim).collect();
    // Those that are alike are counted in one entry.
    let entries = lines
        .windows(4)
        .filter(|entry| entry[0] == "count" && entry[2..] == ["reason", "auth"]);
    entries
        .map(|entry| entry[1].parse::<usize>().unwrap())
        .sum()
}

fn url(server: &RedisServer, query: &str) -> String {
    let url = server.url(&format!("{FRESH}&{query}"));
    url.replace("127.0.0.1", "me@127.0.0.1")
}

#[tokio::test]
async fn a_password_file_that_changes_costs_no_hold() {
    let server = RedisServer::start();
    set_password(&server, &first());
    let file = SecretFile::with(&first());
    let query = format!("password_file={}", file.path());
    let store = RedisStore::connect(&url(&server, &query)).await.unwrap();
    let locks = manager(store);
    let holds = Holds::of(&locks).await;
    // Now there is a connection for heartbeats too.
    holds.are_renewed(breathe).await;

    // First the server: what is open stays open.
    set_password(&server, &second());
    holds.are_renewed(breathe).await;
    // What connects is refused until the file changes.
    disconnect(&server);
    until("a login is refused", async || refusals(&server) > 0).await;
    file.write(&second());
    holds.are_renewed(breathe).await;

    // First the file: the client is ahead of the server.
    file.write(&first());
    let before = refusals(&server);
    disconnect(&server);
    until("a login is refused", async || refusals(&server) > before).await;
    set_password(&server, &first());
    holds.are_renewed(breathe).await;
    assert!(!format!("{locks:?}").contains(CANARY));
    holds.release().await;
    let commands = std::fs::read("/proc/self/cmdline").unwrap();
    assert!(!canary::is_in(&commands));
}

/// A release during the change is repeated until the client has the new password.
#[tokio::test]
async fn a_release_that_is_refused_is_repeated_until_the_password_has_changed() {
    let server = RedisServer::start();
    set_password(&server, &first());
    let file = SecretFile::with(&first());
    let query = format!("max_ttl=10m&password_file={}", file.path());
    let store = RedisStore::connect(&url(&server, &query)).await.unwrap();
    let mut settings = Settings::default();
    // No end by itself is waited for.
    settings.ttl = Duration::from_secs(600);
    settings.max_ttl = settings.ttl;
    let locks = LockManager::builder(store).settings(settings);
    let locks = locks.build().unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    set_password(&server, &second());
    disconnect(&server);
    guard.release().await.unwrap_err();
    until("it is refused again", async || refusals(&server) > 3).await;
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "1");
    file.write(&second());
    until("the key is free", async || {
        server.cli(&["EXISTS", "app:a"]) == "0"
    })
    .await;
}

#[tokio::test]
async fn a_provider_is_asked_again_when_its_credentials_are_refused() {
    let server = RedisServer::start();
    set_password(&server, &second());
    let asked = Arc::default();
    let options = RedisOptions::parse(&server.url(FRESH)).unwrap();
    let options = options.credentials_from(in_turn(&asked, [first(), second()]));
    assert!(!format!("{options:?}").contains(CANARY), "{options:?}");
    // The first connect succeeds, though its first credentials are of yesterday.
    let store = RedisStore::connect_with(options.clone()).await.unwrap();
    assert_eq!((refusals(&server), asked.load(Ordering::SeqCst)), (1, 2));
    let locks = manager(store);
    let holds = Holds::of(&locks).await;
    let before = asked.load(Ordering::SeqCst);
    disconnect(&server);
    holds.are_renewed(breathe).await;
    assert!(asked.load(Ordering::SeqCst) > before);
    holds.release().await;
    // A fence has the same options.
    RedisFence::connect_with(options).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_fails_is_the_reason_of_the_error() {
    let server = RedisServer::start();
    let options = RedisOptions::parse(&server.url(FRESH)).unwrap();
    let options = options.credentials_from(async || Err("no token today".into()));
    let error = RedisStore::connect_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(format!("{error:?}").contains("no token today"), "{error:?}");
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let server = RedisServer::start();
    let query = "password_file=/nowhere/password";
    let connected = RedisStore::connect(&url(&server, query)).await;
    let text = connected.unwrap_err().to_string();
    for part in ["password_file", "/nowhere/password", "NotFound", "check"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn the_user_may_be_in_a_file_too() {
    let server = RedisServer::start();
    set_password(&server, &first());
    let (user, password) = (SecretFile::with("me"), SecretFile::with(&first()));
    let query = format!(
        "{FRESH}&user_file={}&password_file={}",
        user.path(),
        password.path()
    );
    let store = RedisStore::connect(&server.url(&query)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    assert!(server.cli(&["CLIENT", "LIST"]).contains("user=me"));
    release(&store, &held).await;
}

#[tokio::test]
async fn every_node_of_a_cluster_and_every_member_reads_the_file() {
    let file = SecretFile::with(&first());
    let cluster = RedisCluster::of_servers(|_, arguments| RedisServer::start_with(arguments));
    let query = patiently(&format!("{FRESH}&password_file={}", file.path()));
    for node in cluster.masters() {
        set_password(node, &first());
    }
    let port = cluster.masters()[0].port();
    let url = format!("redis+cluster://me@127.0.0.1:{port}/?{query}");
    let store = RedisStore::connect(&url).await.unwrap();
    for name in ["a", "b", "c", "d"] {
        let held = grant(&store, &claim(name)).await;
        release(&store, &held).await;
    }
    for node in cluster.masters() {
        assert!(node.cli(&["CLIENT", "LIST"]).contains("user=me"));
    }

    let servers = [0; 3].map(|_| RedisServer::start());
    let member = |server: &RedisServer| {
        set_password(server, &first());
        let url = format!("redis://me@127.0.0.1:{}/0?{query}", server.port());
        RedisStore::member(RedisOptions::parse(&url).unwrap()).unwrap()
    };
    let quorum = Quorum::new(servers.iter().map(member)).unwrap();
    let ours = claim("a");
    until("a majority grants", async || {
        matches!(
            quorum.acquire(&ours).await,
            Ok(leasehold::store::Acquired::Granted(_))
        )
    })
    .await;
}
