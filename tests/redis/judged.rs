//! When a server is judged: what a client leaves for those that come after a flush, and which
//! answers it believes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::ErrorKind;
use leasehold::clock::{Clock, ManualClock};
use leasehold::redis::simulation::{Dial, Stream};
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::{Acquired, Claim, Grant, Renewed, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::claims::{claim_for, grant, release};
use crate::other_holder::{OtherHolder, age, wait_for};
use crate::proxy::{Fate, Proxy};
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe, free_port};

const MAX_TTL: Duration = Duration::from_secs(1);
const QUERY: &str = "prefix=app&max_ttl=1s&timeout_millis=20000";
const SHORT: Duration = Duration::from_millis(200);
const MARKER: &str = "app:{leasehold}:marker";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(QUERY)).await.unwrap()
}

/// Older than `max_ttl`, in whole seconds: so that it is trusted. Real time, since the server
/// counts it.
async fn grow_old(server: &RedisServer, max_ttl: Duration) {
    while age(server) < max_ttl.as_secs() + 2 {
        breathe().await;
    }
}

/// The server's time.
fn millis(server: &RedisServer) -> u64 {
    let time = server.cli(&["TIME"]);
    let mut time = time.lines().map(|number| number.parse::<u64>().unwrap());
    time.next().unwrap() * 1_000 + time.next().unwrap() / 1_000
}

async fn breathe_for(span: Duration) {
    Clock::system().unwrap().sleep(span).await;
}

/// Somebody flushes the scripts, `go_on` is what the clients of the prefix do after it, and then
/// somebody flushes the data.
async fn nobody_is_let_in_too_early(go_on: impl AsyncFn(&RedisStore, &OtherHolder)) {
    let server = RedisServer::start();
    grow_old(&server, MAX_TTL).await;
    let first = store(&server).await;
    let holder = OtherHolder::holding(&first, "a", MAX_TTL).await;
    assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    go_on(&first, &holder).await;
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    let next = wait_for(&store(&server).await, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_client_that_comes_after_a_flush_of_scripts_an_acquire_and_a_flush_of_data_waits() {
    nobody_is_let_in_too_early(async |store, _| {
        let _held = grant(store, &claim_for("b", SHORT)).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_comes_after_a_flush_of_scripts_a_renewal_and_a_flush_of_data_waits() {
    nobody_is_let_in_too_early(async |store, holder| {
        let renewed = store.renew(std::slice::from_ref(&holder.held)).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    })
    .await;
}

/// A server, for a client whose clock is ours.
#[derive(Debug)]
struct Direct(u16);

impl Dial for Direct {
    fn dial(&self) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let connecting = TcpStream::connect(("127.0.0.1", self.0));
        Box::pin(async { Ok(Box::new(connecting.await?) as Box<dyn Stream>) })
    }
}

/// Clients of another prefix have loaded the scripts, so those of ours find none unknown.
async fn the_notes_are_left_again(go_on: impl AsyncFn(&RedisStore, &Grant)) {
    let server = RedisServer::start();
    grow_old(&server, MAX_TTL).await;
    let clock = ManualClock::new();
    let options = RedisOptions::parse(&server.url(QUERY)).unwrap();
    let dial = Arc::new(Direct(server.port()));
    let ours = RedisStore::simulated(options, clock.clone(), dial).unwrap();
    let held = grant(&ours, &claim_for("a", MAX_TTL)).await;
    drop(ours.renew(std::slice::from_ref(&held)).await);
    assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    let other = server.url("prefix=other&max_ttl=1s");
    let other = RedisStore::connect(&other).await.unwrap();
    let loads = grant(&other, &claim_for("a", SHORT)).await;
    drop(other.renew(std::slice::from_ref(&loads)).await);
    release(&other, &loads).await;
    clock.advance(Duration::from_secs(60));
    go_on(&ours, &held).await;
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    let got = store(&server).await.acquire(&claim_for("a", SHORT)).await;
    assert!(matches!(got, Ok(Acquired::NotReady { .. })), "{got:?}");
}

#[tokio::test]
async fn a_client_leaves_its_notes_again_within_a_minute() {
    the_notes_are_left_again(async |store, _| {
        let _held = grant(store, &claim_for("b", MAX_TTL)).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_only_renews_leaves_its_notes_again_within_a_minute() {
    the_notes_are_left_again(async |store, held| {
        drop(store.renew(std::slice::from_ref(held)).await);
    })
    .await;
}

/// Granted, perhaps after a moment in which the server is not ready.
async fn soon(store: &RedisStore, claim: &Claim) {
    loop {
        match store.acquire(claim).await.unwrap() {
            Acquired::Granted(_) => return,
            Acquired::NotReady { retry_after } => assert!(retry_after < SHORT, "{retry_after:?}"),
            other => panic!("{other:?}"),
        }
        breathe().await;
    }
}

/// The first command of a new user, twice at once: whoever comes second finds the marker of the
/// first one closed for a moment.
#[tokio::test]
async fn two_that_come_first_at_once_are_both_granted() {
    let server = RedisServer::start();
    grow_old(&server, MAX_TTL).await;
    for prefix in 0..20 {
        let url = server.url(&format!("prefix=p{prefix}&max_ttl=1s&timeout_millis=20000"));
        let connect = || async { RedisStore::connect(&url).await.unwrap() };
        let (one, other) = (connect().await, connect().await);
        let (a, b) = (claim_for("a", SHORT), claim_for("b", SHORT));
        tokio::join!(soon(&one, &a), soon(&other, &b));
    }
}

/// A server that reads the first write that looks for notes in two parts, the first one of so many
/// commands.
#[derive(Debug)]
struct InParts {
    port: u16,
    first: usize,
    /// The first part was sent, and the second may follow.
    between: Arc<[Notify; 2]>,
}

impl Dial for InParts {
    fn dial(&self) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (port, first, between) = (self.port, self.first, Arc::clone(&self.between));
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let server = TcpStream::connect(("127.0.0.1", port)).await?;
            tokio::spawn(carry(theirs, server, first, between));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

async fn carry(
    client: DuplexStream,
    server: TcpStream,
    first: usize,
    between: Arc<[Notify; 2]>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let (mut piece, mut is_parted) = (vec![0; 1 << 20], false);
    loop {
        let length = from_client.read(&mut piece).await?;
        let (mut rest, looks) = (&piece[..length], b"\r\nEXISTS\r\n");
        if !is_parted && rest.windows(looks.len()).any(|part| part == looks) {
            is_parted = true;
            let begins = rest.windows(3).enumerate();
            let begins = begins.filter(|(_, part)| *part == b"\r\n*");
            let (at, _) = begins
                .take(first)
                .last()
                .expect("a command in the first part");
            to_server.write_all(&rest[..at + 2]).await?;
            rest = &rest[at + 2..];
            between[0].notify_one();
            between[1].notified().await;
        }
        if length == 0 {
            return Ok(());
        }
        to_server.write_all(rest).await?;
    }
}

#[tokio::test]
async fn a_first_use_and_a_flush_between_two_parts_of_the_write_that_judges_are_noticed() {
    let server = RedisServer::start();
    grow_old(&server, MAX_TTL).await;
    for first in 1..=3 {
        let url = server.url(&format!(
            "prefix=app{first}&max_ttl=1s&timeout_millis=20000"
        ));
        let between = Arc::new([Notify::new(), Notify::new()]);
        let dial = Arc::new(InParts {
            port: server.port(),
            first,
            between: Arc::clone(&between),
        });
        let options = RedisOptions::parse(&url).unwrap();
        let ours = RedisStore::simulated(options, ManualClock::new(), dial).unwrap();
        let claim = claim_for("a", SHORT);
        let asking = ours.acquire(&claim);
        let meanwhile = async {
            between[0].notified().await;
            let user = RedisStore::connect(&url).await.unwrap();
            let holder = OtherHolder::holding(&user, "a", MAX_TTL).await;
            assert_eq!(server.cli(&["FLUSHALL"]), "OK");
            between[1].notify_one();
            holder
        };
        let (got, holder) = futures_util::join!(asking, meanwhile);
        let next = match got {
            Ok(Acquired::Granted(next)) => next,
            _ => wait_for(&ours, &claim).await,
        };
        holder.has_given_way_to(&next);
    }
}

/// Sent a moment after the server was known to be a master, and executed after it was deposed and
/// promoted again.
#[tokio::test]
async fn an_acquire_that_was_late_on_its_way_is_not_believed_if_its_server_is_not_what_it_was() {
    let server = RedisServer::start();
    grow_old(&server, MAX_TTL).await;
    let proxy = Proxy::before(server.port());
    let ours = RedisStore::connect(&proxy.url(QUERY)).await.unwrap();
    let before = grant(&ours, &claim_for("a", SHORT)).await;
    release(&ours, &before).await;
    let came = || proxy.wires().iter().map(|wire| wire.came()).sum::<usize>();
    let came_before = came();
    proxy.all(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    let claim = claim_for("a", SHORT);
    let asking = ours.acquire(&claim);
    let deposing = async {
        while came() == came_before {
            breathe().await;
        }
        let nobody = free_port().to_string();
        assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &nobody]), "OK");
        // Nobody deposes and promotes a server within a second.
        breathe_for(Duration::from_millis(1_500)).await;
        assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        proxy.all(Fate::KIND);
    };
    let (got, ()) = futures_util::join!(asking, deposing);
    let error = got.expect_err("its server has forgotten what another one granted");
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    ours.withdraw(&claim).await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

/// The script has granted, whatever became of the question that went before it.
#[tokio::test]
async fn a_grant_whose_server_could_not_be_compared_is_in_doubt() {
    let server = RedisServer::start();
    let password = format!(">{CANARY}");
    let user = ["ACL", "SETUSER", "me", "on", &password, "~app:*", "+@all"];
    assert_eq!(server.cli(&user), "OK");
    grow_old(&server, MAX_TTL).await;
    let url = server
        .url(QUERY)
        .replace("127.0.0.1", &format!("me:{CANARY}@127.0.0.1"));
    let ours = RedisStore::connect(&url).await.unwrap();
    let before = grant(&ours, &claim_for("a", SHORT)).await;
    release(&ours, &before).await;
    // Longer than an idle second.
    breathe_for(Duration::from_millis(1_500)).await;
    assert_eq!(server.cli(&["ACL", "SETUSER", "me", "-info"]), "OK");
    let claim = claim_for("a", MAX_TTL);
    let error = ours.acquire(&claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    ours.withdraw(&claim).await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

/// The first request of a prefix writes its marker, and opens it with a second one.
#[tokio::test]
async fn a_first_acquire_that_is_dropped_on_its_way_makes_nobody_wait() {
    const MAX_TTL: Duration = Duration::from_secs(6);
    const QUERY: &str = "prefix=app&max_ttl=6s&timeout_millis=20000";
    let server = RedisServer::start();
    grow_old(&server, MAX_TTL).await;
    let proxy = Proxy::before(server.port());
    proxy.next(Fate {
        delay: Duration::from_millis(200),
        ..Fate::KIND
    });
    let dropped = RedisStore::connect(&proxy.url(QUERY)).await.unwrap();
    let asking = tokio::spawn({
        let dropped = dropped.clone();
        async move { dropped.acquire(&claim_for("a", SHORT)).await }
    });
    while server.cli(&["EXISTS", MARKER]) == "0" {
        breathe().await;
    }
    let closed = server.cli(&["GET", MARKER]);
    asking.abort();
    let other = RedisStore::connect(&server.url(QUERY)).await.unwrap();
    let _held = wait_for(&other, &claim_for("b", SHORT)).await;
    let now = millis(&server);
    let closed_until: u64 = closed.split(' ').nth(2).unwrap().parse().unwrap();
    assert!(now < closed_until, "{closed} at {now}");
}

const JUDGE: &str = include_str!("../../src/redis/store/scripts/judge.lua");

/// The answer at a server that says nothing of `hidden`. `off`: 1 if restarts are of no account.
fn judged(server: &RedisServer, hidden: &str, off: &str) -> String {
    let text = format!(
        "local redis = {{call = redis.call, pcall = function(...) local said = redis.pcall(...) \
         return type(said) == 'string' and string.gsub(said, '{hidden}:%w+', '') or said end}} {JUDGE}"
    );
    let token = "app:{leasehold}:token";
    let call = ["EVAL", &*text, "2", MARKER, token];
    let arguments = ["1000", "1000", off, "", "3600000", "? 0", "0", "0"];
    server.cli(&[&call[..], &arguments].concat())
}

#[test]
fn a_server_that_does_not_say_which_run_it_is_grants_nothing_unless_restarts_are_of_no_account() {
    let server = RedisServer::start();
    for hidden in ["run_id", "master_replid"] {
        assert_eq!(judged(&server, hidden, "0"), "hidden");
        assert_eq!(server.cli(&["EXISTS", MARKER]), "0");
        let told = judged(&server, hidden, "1");
        assert!(
            told.starts_with("mark ") && told.contains(" v4 ? "),
            "{told}"
        );
        assert_eq!(server.cli(&["DEL", MARKER]), "1");
    }
    assert!(!judged(&server, "nothing", "0").contains('?'));
}

#[test]
fn a_client_to_which_restarts_are_of_no_account_leaves_the_marker_of_the_others() {
    let server = RedisServer::start();
    let waits = judged(&server, "nothing", "0");
    let marker = server.cli(&["GET", MARKER]);
    assert!(waits.ends_with(&marker), "{waits}: {marker}");
    for hidden in ["run_id", "master_replid", "nothing"] {
        let told = judged(&server, hidden, "1");
        assert!(told.ends_with(&marker), "{told}: {marker}");
        assert_eq!(server.cli(&["GET", MARKER]), marker);
    }
}
