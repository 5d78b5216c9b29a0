//! What the default driver rides out: a connection that breaks costs no hold while the session
//! stands.
//!
//! The boxed driver does not: any trouble with the connection ends its session. Nor does it carry
//! thousands of holds, since it looks at each of them at every heartbeat, one request after the
//! other.

use std::time::Duration;

use crate::proxy::{Proxy, Way};
use crate::zookeeper::{
    Ensemble, Server, TICK, children, claim, granted, insist, is_busy, open, options, raw, renewed,
    rest, short_store, store, until, wait_for,
};
use futures_util::future::join_all;
use leasehold::ErrorKind;
use leasehold::clock::Clock;
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::zookeeper::{ZooKeeperMode, ZooKeeperStore};

#[tokio::test]
async fn a_server_stopped_for_less_than_the_session_costs_no_hold() {
    let server = Server::start();
    let store = short_store(&server.address(), "/short").await;
    let mine = claim("k");
    let grant = granted(&store, &mine).await;
    server.freeze();
    rest(Duration::from_secs(1)).await;
    server.thaw();
    until("the hold is renewed", || async {
        matches!(renewed(&store, &grant).await, Renewed::Extended(_))
    })
    .await;
    assert_eq!(granted(&store, &mine).await.token, grant.token);
}

#[tokio::test]
async fn a_host_that_is_not_there_is_named() {
    let url =
        "zookeeper://neither.invalid,no-such-host.invalid/a?session_timeout=2s&tick_time=200ms";
    let error = ZooKeeperStore::connect(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("unavailable: host name not found: servers=neither.invalid:2181,no-such-host.invalid:2181;"),
        "{text}"
    );
    assert!(std::error::Error::source(&error).is_some(), "{error:?}");
}

/// Cuts the connection after every so many bytes of a whole turn, either way: before a request, in
/// it, behind it, before its answer, in it, behind it.
#[tokio::test]
async fn a_connection_cut_at_any_step_leaves_one_node_or_none() {
    let server = Server::start();
    let client = raw(&server).await;
    for (mode, chroot) in [
        (ZooKeeperMode::Queue, "/cuts"),
        (ZooKeeperMode::Simple, "/cuts-simple"),
    ] {
        let proxy = Proxy::to(server.port);
        let mut options = options(&format!("127.0.0.1:{}", proxy.port), chroot);
        options.mode = mode;
        let store = open(options).await;
        let path = format!("{chroot}/k");
        let turn = claim("k");
        let grant = granted(&store, &turn).await;
        let _ = store.release(&grant).await;
        let before = [proxy.passed(Way::ToServer), proxy.passed(Way::ToClient)];
        let turn = claim("k");
        let grant = granted(&store, &turn).await;
        let _ = store.release(&grant).await;
        let bytes = [
            proxy.passed(Way::ToServer) - before[0],
            proxy.passed(Way::ToClient) - before[1],
        ];
        let mut cuts = 0;
        for (way, bytes) in [(Way::ToServer, bytes[0]), (Way::ToClient, bytes[1])] {
            for after in (1..=bytes).step_by(23) {
                let what = format!("{mode:?} {way:?} after {after} of {bytes} bytes");
                proxy.cut_after(way, after);
                let turn = claim("k");
                let grant = insist(&store, &turn).await;
                assert_eq!(children(&client, &path).await.len(), 1, "{what}");
                let again = insist(&store, &turn).await;
                assert_eq!(again.token, grant.token, "{what}");
                until("the release is confirmed", || async {
                    !matches!(store.release(&grant).await, Released::Unknown(_))
                })
                .await;
                assert_eq!(children(&client, &path).await, [""; 0], "{what}");
                cuts += usize::from(!proxy.cut_is_pending());
                proxy.never_mind();
            }
        }
        assert!(cuts > 20, "only {cuts} cuts fell into a turn");
        // A claim that is withdrawn at any step leaves nothing either.
        for after in (1..=bytes[0]).step_by(37) {
            proxy.cut_after(Way::ToServer, after);
            let turn = claim("k");
            let clock = Clock::system().unwrap();
            let _ = clock
                .timeout(Duration::from_millis(5), store.acquire(&turn))
                .await;
            until("the claim is withdrawn", || async {
                store.withdraw(&turn).await.is_ok()
            })
            .await;
            assert_eq!(
                children(&client, &path).await,
                [""; 0],
                "{mode:?} withdrawn after {after} bytes"
            );
            proxy.never_mind();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_no_hold() {
    let ensemble = Ensemble::start(TICK);
    let a = open(options(&ensemble.addresses(), "/leader")).await;
    let b = open(options(&ensemble.followers()[0].address(), "/leader")).await;
    let grant = granted(&a, &claim("k")).await;
    let next = claim("k");
    assert!(is_busy(&b, &next).await);
    ensemble.leader().kill();
    until("the hold is renewed by the new leader", || async {
        let clock = Clock::system().unwrap();
        let renewing = clock
            .timeout(Duration::from_millis(500), renewed(&a, &grant))
            .await;
        assert!(
            !matches!(renewing, Some(Renewed::Gone)),
            "the session outlives its leader"
        );
        matches!(renewing, Some(Renewed::Extended(_)))
    })
    .await;
    until("the waiter asks again", || async {
        matches!(b.acquire(&next).await, Ok(Acquired::Busy { .. }))
    })
    .await;
    assert!(matches!(a.release(&grant).await, Released::Released));
    let grant_of_next = wait_for(&b, &next).await;
    assert!(grant_of_next.token > grant.token);
}

#[tokio::test]
async fn a_session_that_the_server_shortens_below_four_ticks_is_refused() {
    let server = Server::shared();
    let mut options = crate::zookeeper::options(&server.address(), "/ticks");
    // The test server grants at most a minute.
    options.session_timeout = Duration::from_secs(90);
    options.tick_time = Duration::from_secs(20);
    let clock = leasehold::clock::Clock::system().unwrap();
    let error = leasehold::zookeeper::ZooKeeperStore::open(options, clock)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("session_timeout=60s"), "{error}");
}

#[tokio::test]
async fn five_thousand_locks_are_held_and_renewed_on_one_session() {
    let server = Server::start();
    let store = store(&server, "/many").await;
    let claims: Vec<_> = (0..5_000).map(|n| claim(&format!("k{n}"))).collect();
    let mut grants = Vec::new();
    for many in claims.chunks(1_000) {
        for some in many.chunks(250) {
            grants.extend(join_all(some.iter().map(|claim| granted(&store, claim))).await);
        }
        // All that are held so far: the first must not lapse while the last are asked for.
        let answers = store.renew(&grants).await;
        assert_eq!(answers.len(), grants.len());
        let extended = |answer: &&Renewed| matches!(answer, Renewed::Extended(_));
        assert_eq!(answers.iter().filter(extended).count(), grants.len());
    }
    assert_eq!(grants.len(), 5_000);
    for some in grants.chunks(250) {
        let released = join_all(some.iter().map(|grant| store.release(grant))).await;
        assert!(
            released
                .iter()
                .all(|released| matches!(released, Released::Released))
        );
    }
}

#[tokio::test]
async fn a_session_whose_thread_cannot_be_started_is_an_error() {
    if crate::no_threads::begin() {
        let refused = ZooKeeperStore::connect("zookeeper://127.0.0.1:1/locks").await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("thread"), "{refused}");
        return;
    }
    let name = "connection::a_session_whose_thread_cannot_be_started_is_an_error";
    let output = crate::no_threads::run(name);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}");
}
