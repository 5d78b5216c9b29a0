//! Passwords that change while locks are held.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::redis::{RedisFence, RedisOptions, RedisStore};
use leasehold::store::quorum::Quorum;
use leasehold::{ErrorKind, LockManager, Settings};

use crate::claims::{claim, grant, release};
use crate::rotation_of::{Holds, SecretFile, in_turn, manager};
use crate::sentinel::Sentinel;
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

/// Holds over a change at all these servers at once, and then in the file.
async fn holds_outlive_a_change(
    locks: &LockManager,
    servers: &[&RedisServer],
    file: &SecretFile,
    further: impl FnOnce(),
) {
    let holds = Holds::of(locks).await;
    holds.are_renewed(breathe).await;
    for server in servers {
        set_password(server, &second());
        disconnect(server);
    }
    until("a login is refused", async || {
        servers.iter().all(|server| refusals(server) > 0)
    })
    .await;
    file.write(&second());
    further();
    holds.are_renewed(breathe).await;
    holds.release().await;
}

#[tokio::test]
async fn holds_in_a_cluster_outlive_a_change_of_the_password_of_all_nodes() {
    let file = SecretFile::with(&first());
    let cluster = RedisCluster::of_servers(|_, arguments| RedisServer::start_with(arguments));
    for node in cluster.masters() {
        set_password(node, &first());
    }
    let query = patiently(&format!("{FRESH}&password_file={}", file.path()));
    let port = cluster.masters()[0].port();
    let url = format!("redis+cluster://me@127.0.0.1:{port}/?{query}");
    let locks = manager(RedisStore::connect(&url).await.unwrap());
    let masters: Vec<_> = cluster.masters().iter().collect();
    holds_outlive_a_change(&locks, &masters, &file, || {}).await;
}

#[tokio::test]
async fn holds_of_a_majority_outlive_a_change_of_the_password_of_all_members() {
    let file = SecretFile::with(&first());
    let servers = [0; 3].map(|_| RedisServer::start());
    let query = patiently(&format!("{FRESH}&password_file={}", file.path()));
    let member = |server: &RedisServer| {
        set_password(server, &first());
        let url = format!("redis://me@127.0.0.1:{}/0?{query}", server.port());
        RedisStore::member(RedisOptions::parse(&url).unwrap()).unwrap()
    };
    let locks = manager(Quorum::new(servers.iter().map(member)).unwrap());
    let members: Vec<_> = servers.iter().collect();
    holds_outlive_a_change(&locks, &members, &file, || {}).await;
}

/// Three sentinels that name this master, and let in `me` with this password, and nobody else; and
/// the hosts of a URL.
async fn behind_sentinels(master: &RedisServer, password: &str) -> ([Sentinel; 3], String) {
    let sentinels = [0; 3].map(|_| Sentinel::watching_at(master, master.port(), ""));
    until("the sentinels answer", async || {
        sentinels.iter().all(|one| one.cli(&["PING"]) == "PONG")
    })
    .await;
    let_in_at(&sentinels, &[], password);
    for one in &sentinels {
        assert_eq!(one.cli(&["ACL", "SETUSER", "default", "off"]), "OK");
    }
    let hosts = sentinels
        .each_ref()
        .map(|one| format!("127.0.0.1:{}", one.port()));
    (sentinels, hosts.join(","))
}

fn let_in_at(sentinels: &[Sentinel], login: &[&str], password: &str) {
    let password = format!(">{password}");
    let me = [
        "ACL",
        "SETUSER",
        "me",
        "on",
        "resetpass",
        &password,
        "+@all",
    ];
    for one in sentinels {
        assert_eq!(one.cli(&[login, &me].concat()), "OK");
    }
}

#[tokio::test]
async fn holds_behind_sentinels_outlive_a_change_of_their_password_and_of_the_masters() {
    let master = RedisServer::start();
    set_password(&master, &first());
    let (sentinels, hosts) = behind_sentinels(&master, &first()).await;
    let (user, file) = (SecretFile::with("me"), SecretFile::with(&first()));
    let of_sentinels = SecretFile::with(&first());
    let query = patiently(&format!(
        "{FRESH}&password_file={}&sentinel_user_file={}&sentinel_password_file={}",
        file.path(),
        user.path(),
        of_sentinels.path()
    ));
    let url = format!("redis+sentinel://me@{hosts}/main?{query}");
    let locks = manager(RedisStore::connect(&url).await.unwrap());
    let change = || {
        let login = ["--user", "me", "--pass", &first()];
        let_in_at(&sentinels, &login, &second());
        of_sentinels.write(&second());
    };
    holds_outlive_a_change(&locks, &[&master], &file, change).await;
}

#[tokio::test]
async fn a_provider_has_the_credentials_of_the_sentinels() {
    let master = RedisServer::start();
    let (_sentinels, hosts) = behind_sentinels(&master, &second()).await;
    let asked = Arc::default();
    let url = format!("redis+sentinel://{hosts}/main?{}", patiently(FRESH));
    let options = RedisOptions::parse(&url).unwrap();
    let options = options.sentinel_credentials_from(in_turn(&asked, [first(), second()]));
    let store = RedisStore::connect_with(options).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    // Each of the majority, and the one that was refused once more.
    assert!(asked.load(Ordering::SeqCst) >= 3);
    release(&store, &held).await;
}

/// In front of a server: what comes over a connection from before [`expire`](Self::expire) is
/// refused, as by a server that logs out whoever has a token that has expired.
struct Expiring {
    port: u16,
    age: Arc<AtomicUsize>,
}

impl Expiring {
    fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let age = Arc::<AtomicUsize>::default();
        let now = Arc::clone(&age);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server)))
                else {
                    return;
                };
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || drop(io::copy(&mut from, &mut to)));
                let now = Arc::clone(&now);
                thread::spawn(move || drop(Self::carry(client, server, &now)));
            }
        });
        Self { port, age }
    }

    fn expire(&self) {
        self.age.fetch_add(1, Ordering::SeqCst);
    }

    fn carry(mut client: TcpStream, mut server: TcpStream, age: &AtomicUsize) -> io::Result<()> {
        let born = age.load(Ordering::SeqCst);
        let mut piece = vec![0; 1 << 20];
        let mut commands = Vec::new();
        loop {
            let count = client.read(&mut piece)?;
            if count == 0 {
                return server.shutdown(Shutdown::Both);
            }
            if age.load(Ordering::SeqCst) == born {
                server.write_all(&piece[..count])?;
                continue;
            }
            commands.extend_from_slice(&piece[..count]);
            while let Some(length) = command(&commands) {
                commands.drain(..length);
                client.write_all(b"-NOAUTH Authentication required.\r\n")?;
            }
        }
    }
}

/// The length of the command with which these bytes begin.
fn command(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| {
        let end = at + bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let number = std::str::from_utf8(&bytes[at + 1..end]).ok()?;
        Some((number.parse::<usize>().ok()?, end + 2))
    };
    let (words, mut at) = number(0)?;
    for _ in 0..words {
        let (length, begin) = number(at)?;
        at = begin + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

#[tokio::test]
async fn an_open_connection_whose_login_has_expired_is_made_again_with_the_credentials_of_now() {
    let server = RedisServer::start();
    set_password(&server, &first());
    let expiring = Expiring::before(server.port());
    let asked = Arc::default();
    let url = format!("redis://127.0.0.1:{}/0?{}", expiring.port, patiently(FRESH));
    let options = RedisOptions::parse(&url).unwrap();
    let options = options.credentials_from(in_turn(&asked, [first(), first()]));
    let locks = manager(RedisStore::connect_with(options).await.unwrap());
    let holds = Holds::of(&locks).await;
    holds.are_renewed(breathe).await;
    for _ in 0..2 {
        let before = asked.load(Ordering::SeqCst);
        expiring.expire();
        holds.are_renewed(breathe).await;
        assert!(asked.load(Ordering::SeqCst) > before);
        // Of callers too: the request that finds it out fails, and the next one does not.
        if let Err(error) = locks.lock("another").acquire().await {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        }
        drop(locks.lock("another").acquire().await.unwrap());
    }
    holds.release().await;
}
