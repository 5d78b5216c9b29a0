//! Faults on a real ZooKeeper: stopped servers, cut connections, ended sessions, killed clients,
//! access rights.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use crate::proxy::Proxy;
use crate::zookeeper::canary::CANARY;
use crate::zookeeper::{
    PATIENCE, SHORT, Server, again, children, claim, granted, insist, is_busy, open, options, raw,
    renewed, rest, short_store, store, until, wait_for,
};
use futures_util::future::{join_all, select};
use leasehold::clock::{Clock, ClockKind};
use leasehold::store::{Grant, Released, Renewed, Store};
use leasehold::zookeeper::{ZooKeeperOptions, ZooKeeperStore};
use leasehold::{Credentials, ErrorKind};
use zookeeper_client::{Acls, CreateMode, Error as Zk};

#[tokio::test]
async fn a_server_stopped_for_more_than_the_session_ends_every_lease_and_locks_go_on() {
    let server = Server::start();
    let clock = Clock::system().unwrap();
    let store = short_store(&server.address(), "/long").await;
    let mine = claim("k");
    let grant = granted(&store, &mine).await;
    server.freeze();
    rest(SHORT * 2).await;
    // Nothing was proven in all that time.
    let answer = clock
        .timeout(Duration::from_millis(100), renewed(&store, &grant))
        .await;
    assert!(!matches!(answer, Some(Renewed::Extended(_))), "{answer:?}");
    server.thaw();
    let next = insist(&store, &claim("k2")).await;
    assert!(next.token > grant.token);
    // The old hold is either gone, or the server kept the session, and then it is still exactly
    // ours.
    let again = insist(&store, &mine).await;
    assert!(again.token >= grant.token);
    assert_eq!(children(&raw(&server).await, "/long/k").await.len(), 1);
}

#[tokio::test]
async fn a_session_that_ended_takes_its_holds_along_and_waiting_claims_join_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let client = raw(&server).await;
    let a = short_store(&format!("127.0.0.1:{}", proxy.port), "/expiry").await;
    let b = store(&server, "/expiry").await;
    let (held, waiting) = (claim("held"), claim("wanted"));
    let grant = granted(&a, &held).await;
    let other = granted(&b, &claim("wanted")).await;
    assert!(is_busy(&a, &waiting).await);
    let owner_before = client.check_stat("/expiry/held").await.unwrap().unwrap();
    assert_eq!(owner_before.num_children, 1);

    proxy.stall();
    let taken = wait_for(&b, &claim("held")).await;
    assert!(taken.token > grant.token);
    until(
        "the place in the other queue went with the session",
        || async { children(&client, "/expiry/wanted").await.len() == 1 },
    )
    .await;
    proxy.resume();
    proxy.reset();

    until("the hold is gone", || async {
        matches!(renewed(&a, &grant).await, Renewed::Gone)
    })
    .await;
    // A new session by itself; the claim that waits stands in the queue again, once.
    until("the claim stands in the queue again", || async {
        is_busy(&a, &waiting).await && children(&client, "/expiry/wanted").await.len() == 2
    })
    .await;
    assert!(is_busy(&a, &held).await);
    assert!(matches!(
        a.release(&grant).await,
        Released::Released | Released::AlreadyGone
    ));
    assert_eq!(children(&client, "/expiry/held").await.len(), 1);
    assert!(matches!(b.release(&other).await, Released::Released));
    let granted = wait_for(&a, &waiting).await;
    assert!(granted.token > other.token);
    assert!(matches!(renewed(&a, &granted).await, Renewed::Extended(_)));
    assert!(matches!(renewed(&b, &taken).await, Renewed::Extended(_)));
}

#[tokio::test]
async fn wrong_credentials_are_denied_and_nodes_belong_to_their_creator() {
    let server = Server::shared();
    let with = |login: Option<(&str, &str)>| {
        let mut options = options(&server.address(), "/private");
        options.credentials = login.map(|(user, password)| Credentials::new(user, password));
        options
    };
    let clock = Clock::system().unwrap();
    let other = format!("{CANARY}-not");
    let mine = open(with(Some(("me", CANARY)))).await;
    let grant = granted(&mine, &claim("k")).await;
    for login in [Some(("me", other.as_str())), Some(("you", CANARY)), None] {
        let error = ZooKeeperStore::open(with(login), clock.clone())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(CANARY), "{shown}");
    }
    let stranger = raw(&server).await;
    assert_eq!(
        stranger.list_children("/private/k").await.unwrap_err(),
        Zk::NoAuth
    );
    let same = open(with(Some(("me", CANARY)))).await;
    assert!(is_busy(&same, &claim("k")).await);
    assert!(matches!(mine.release(&grant).await, Released::Released));
}

/// The hashes are those of `alice` and `bob` with the canary as their password.
#[tokio::test]
async fn two_users_share_a_chroot_when_its_acl_names_both_and_get_a_clear_error_when_it_does_not() {
    let server = Server::shared();
    let acl = "acl=digest:alice:FqX5U6cFJ3ckKh0LiQHesCHVc54=:cdrwa,digest:bob:skrVsHYMnxZtFBPlvjJ%2BwGgGX84=:cdrwa";
    let with = |user: &str, chroot: &str, acl: &str| {
        let url = format!(
            "zookeeper://{user}:{CANARY}@{}/{chroot}?tick_time=500ms&{acl}",
            server.address()
        );
        let mut parsed = ZooKeeperOptions::parse(&url).unwrap();
        parsed.driver = options("x:1", "").driver;
        parsed
    };
    let alice = open(with("alice", "shared-by-two", acl)).await;
    let bob = open(with("bob", "shared-by-two", acl)).await;
    let held = granted(&alice, &claim("k")).await;
    let next = claim("k");
    assert!(is_busy(&bob, &next).await);
    assert!(matches!(alice.release(&held).await, Released::Released));
    let _held = wait_for(&bob, &next).await;

    let _alice = open(with("alice", "of-alice", "")).await;
    let refused = ZooKeeperStore::open(with("bob", "of-alice", ""), Clock::system().unwrap());
    let error = refused.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("acl="), "{error}");
}

#[tokio::test]
async fn a_list_leaves_out_what_the_session_may_not_read() {
    let server = Server::shared();
    let acl = "&acl=digest:alice:FqX5U6cFJ3ckKh0LiQHesCHVc54=:cdrwa,digest:bob:skrVsHYMnxZtFBPlvjJ%2BwGgGX84=:cdrwa";
    let with = |user: &str, acl: &str| {
        let url = format!(
            "zookeeper://{user}:{CANARY}@{}/listed-by-two?tick_time=500ms{acl}",
            server.address()
        );
        let mut parsed = ZooKeeperOptions::parse(&url).unwrap();
        parsed.driver = options("x:1", "").driver;
        parsed
    };
    let alice = open(with("alice", acl)).await;
    let bob = open(with("bob", acl)).await;
    let _seen = granted(&alice, &claim("seen")).await;
    // The same user, whose new nodes are for itself alone.
    let alone = open(with("alice", "")).await;
    let _hidden = granted(&alone, &claim("hidden")).await;
    for (store, expected) in [(&bob, &["seen"][..]), (&alice, &["hidden", "seen"])] {
        let listed = store.list("").await.unwrap();
        let keys: Vec<&str> = listed.iter().map(|info| info.key.as_str()).collect();
        assert_eq!(keys, expected);
    }
}

#[tokio::test]
async fn nobody_at_home_is_unavailable_within_the_session_time_out() {
    let mut options = options(
        &format!("127.0.0.1:{}", crate::zookeeper::free_port()),
        "/x",
    );
    options.session_timeout = Duration::from_secs(2);
    let error = ZooKeeperStore::open(options, Clock::system().unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// How many watch events for deleted nodes the server has sent.
fn watch_events(server: &Server) -> u64 {
    let report = server.ask("mntr").unwrap();
    let value = report
        .lines()
        .find_map(|line| line.strip_prefix("zk_sum_node_deleted_watch_count"))
        .unwrap();
    value.trim().parse::<f64>().unwrap() as u64
}

#[tokio::test]
async fn a_release_wakes_one_of_two_hundred_waiters() {
    let server = Server::start();
    let stores: Vec<_> = join_all((0..4).map(|_| store(&server, "/herd"))).await;
    let mut grant = granted(&stores[0], &claim("k")).await;
    let mut holder = 0;
    let claims: Vec<_> = (0..200).map(|_| claim("k")).collect();
    let mut hints = Vec::new();
    for (n, claim) in claims.iter().enumerate() {
        let store = &stores[n % 4];
        assert!(is_busy(store, claim).await);
        hints.push(Box::pin(store.subscribe(claim).await.unwrap()));
    }
    for (turn, next) in claims.iter().take(20).enumerate() {
        let before = watch_events(&server);
        assert!(matches!(
            stores[holder].release(&grant).await,
            Released::Released
        ));
        hints.remove(0).await;
        // The server has sent what there was to send before it answers this.
        stores[0].inspect(&next.key).await.unwrap();
        assert_eq!(watch_events(&server) - before, 1, "turn {turn}");
        let woken = hints
            .iter_mut()
            .map(|hint| futures_util::FutureExt::now_or_never(hint.as_mut()).is_some());
        assert_eq!(woken.filter(|&woken| woken).count(), 0, "turn {turn}");
        holder = turn % 4;
        grant = granted(&stores[holder], next).await;
    }
}

#[tokio::test]
async fn a_grant_that_nobody_renews_ends_although_its_session_lives() {
    let server = Server::shared();
    let (a, b) = (
        short_store(&server.address(), "/forgotten").await,
        store(&server, "/forgotten").await,
    );
    let clock = Clock::system().unwrap();
    let before = clock.stamp();
    let (forgotten, kept) = (
        granted(&a, &claim("k")).await,
        granted(&a, &claim("kept")).await,
    );
    let next = claim("k");
    assert!(is_busy(&b, &next).await);
    let renewing = async {
        loop {
            assert!(matches!(renewed(&a, &kept).await, Renewed::Extended(_)));
            rest(SHORT / 6).await;
        }
    };
    let waiting = clock.timeout(PATIENCE, wait_for(&b, &next));
    select(Box::pin(waiting), Box::pin(renewing)).await;
    assert!(clock.stamp().since(&before) >= SHORT);
    assert!(matches!(renewed(&a, &forgotten).await, Renewed::Gone));
    assert!(matches!(renewed(&a, &kept).await, Renewed::Extended(_)));
    assert!(matches!(granted(&b, &next).await, Grant { .. }));
}

const CHILD: &str = "LEASEHOLD_TEST_ZOOKEEPER_CHILD";

/// The client that the test kills, in a process of its own. Holds a lock and says from when its
/// lease counts.
async fn hold_until_killed(address: &str) -> ! {
    let store = short_store(address, "/killed").await;
    let grant = granted(&store, &claim("k")).await;
    loop {
        if let Renewed::Extended(proof) = renewed(&store, &grant).await {
            println!("base {}", proof.sent_at.unwrap().on(ClockKind::Boot));
        }
        rest(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_killed_client_holds_its_lock_until_its_lease_is_over_and_not_for_ever() {
    if let Ok(address) = std::env::var(CHILD) {
        hold_until_killed(&address).await;
    }
    let server = Server::shared();
    let clock = Clock::system().unwrap();
    let own_name = "a_killed_client_holds_its_lock_until_its_lease_is_over_and_not_for_ever";
    let mut child = again(module_path!(), own_name, CHILD, &server.address())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut base = None;
    let mut said = 0;
    while said < 60 {
        let line = lines
            .next()
            .expect("the child says when it renews")
            .unwrap();
        if let Some(nanos) = line.strip_prefix("base ") {
            base = nanos.parse::<u64>().ok();
            said += 1;
        }
    }
    let b = store(&server, "/killed").await;
    let next = claim("k");
    assert!(is_busy(&b, &next).await);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        base = line
            .strip_prefix("base ")
            .and_then(|nanos| nanos.parse().ok())
            .or(base);
    }
    let _granted = clock
        .timeout(PATIENCE, wait_for(&b, &next))
        .await
        .expect("the lock becomes free");
    let freed = clock.stamp().on(ClockKind::Boot);
    // CLOCK_BOOTTIME is the same for both processes.
    let end = base.unwrap() + u64::try_from(SHORT.as_nanos()).unwrap();
    assert!(
        freed >= end,
        "the lock was free {} ms before the lease was over",
        (end - freed) / 1_000_000
    );
}

#[tokio::test]
async fn a_client_that_makes_nodes_by_hand_takes_turns_with_us() {
    let server = Server::shared();
    let store = store(&server, "/foreign").await;
    let client = raw(&server).await;
    let first = granted(&store, &claim("k")).await;
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client
        .create("/foreign/k/guid__lock__", b"", &options)
        .await
        .unwrap();
    let next = claim("k");
    assert!(is_busy(&store, &next).await);
    assert!(matches!(store.release(&first).await, Released::Released));
    assert!(is_busy(&store, &next).await, "the foreigner came before");
    client
        .delete(&format!("/foreign/k/guid__lock__{sequence}"), None)
        .await
        .unwrap();
    let _granted = wait_for(&store, &next).await;
}
