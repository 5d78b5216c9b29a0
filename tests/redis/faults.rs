//! Answers that are lost, late, or cut off: what is in doubt is taken back, and nothing stays
//! locked.

use std::time::Duration;

use crate::claims::{claim, claim_for, grant, is_busy, key, once, queued, release};
use crate::other_holder::wait_for;
use crate::proxy::{Fate, Proxy};
use crate::server::{RedisServer, breathe, free_port};
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Claim, LockMode, Released, Renewed, Store};
use leasehold::{Error, ErrorKind};

/// Longer than a busy machine holds an answer up.
const PATIENT: &str = "restart_quarantine=off&timeout_millis=20000";
/// For what is not answered. On a busy machine it gives up here and there what would have been
/// answered.
const IMPATIENT: &str = "restart_quarantine=off&timeout_millis=1000";

async fn patient(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(PATIENT)).await.unwrap()
}

/// Asks again until there is an answer, as the manager does.
async fn answered<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match ask().await {
            Err(error) if [ErrorKind::InDoubt, ErrorKind::Unavailable].contains(&error.kind()) => {
                breathe().await;
            }
            answer => return answer,
        }
    }
}

/// A store that gives up soon, and whose scripts are loaded: so that a request that is lost or late
/// is the one that does it, and not the one that has to send the text.
async fn impatient(url: &str) -> RedisStore {
    let store = answered(async || RedisStore::connect(url).await).await;
    let store = store.unwrap();
    let held = wait_for(&store, &claim("warm-up")).await;
    while matches!(store.release(&held).await, Released::Unknown(_)) {
        breathe().await;
    }
    store
}

/// Asks again until the store is sure, as the manager does.
async fn withdraw(store: &RedisStore, claim: &Claim) {
    answered(async || store.withdraw(claim).await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_stopped_server_keeps_no_lock_of_an_acquire_that_was_withdrawn() {
    let server = RedisServer::start();
    let store = impatient(&server.url(IMPATIENT)).await;
    server.pause();
    let mut asked = Vec::new();
    // Attempts whose callers ran out of patience. They come first, while the store still connects
    // at once.
    for number in 5..10 {
        let ours = claim(&format!("k{number}"));
        let mut attempt = std::pin::pin!(store.acquire(&ours));
        assert!(futures_util::poll!(&mut attempt).is_pending());
        breathe().await;
        asked.push(ours.clone());
    }
    for number in 0..5 {
        let ours = claim(&format!("k{number}"));
        let error = store.acquire(&ours).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::InDoubt | ErrorKind::Unavailable),
            "{error}"
        );
        asked.push(ours);
    }
    server.resume();
    for ours in &asked {
        withdraw(&store, ours).await;
    }
    let other = patient(&server).await;
    assert_eq!(other.list("").await.unwrap(), []);
    for ours in &asked {
        let refused = answered(async || store.acquire(ours).await).await;
        let error = refused.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Invalid,
            "a withdrawn claim is never granted: {error}"
        );
        let held = grant(&other, &claim(ours.key.as_str())).await;
        release(&other, &held).await;
    }
}

/// How many scripts the server has executed, as it reports them.
fn scripts_of(server: &RedisServer) -> Option<String> {
    (server.cli(&["INFO", "commandstats"]).lines())
        .find(|line| line.starts_with("cmdstat_evalsha"))
        .map(str::to_owned)
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_withdrawal_is_refused() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = impatient(&proxy.url(IMPATIENT)).await;
    let wires = proxy.wires();
    let wire = wires.last().unwrap();
    wire.set(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    let ours = claim("a");
    assert_eq!(
        store.acquire(&ours).await.unwrap_err().kind(),
        ErrorKind::InDoubt
    );
    // It goes over a new connection, and so it is first.
    withdraw(&store, &ours).await;
    assert!(proxy.wires().len() > wires.len());

    let (before, _) = wire.carried();
    let executed = scripts_of(&server);
    wire.set(Fate::KIND);
    while scripts_of(&server) == executed {
        breathe().await;
    }
    assert!(wire.carried().0 > before, "the acquire was delivered");
    assert_eq!(server.cli(&["EXISTS", "a"]), "0");
    let _held = grant(&patient(&server).await, &claim("a")).await;
}

#[tokio::test]
async fn a_place_that_is_asked_for_after_its_withdrawal_is_refused() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = impatient(&proxy.url(IMPATIENT)).await;
    let holder = patient(&server).await;
    let held = grant(&holder, &claim("a")).await;
    let first = queued("a", LockMode::Write);
    let busy = answered(async || store.acquire(&first).await).await;
    assert!(matches!(busy, Ok(Acquired::Busy { .. })), "{busy:?}");
    server.cli(&["DEL", "a{a}:queue", "a{a}:line", "a{a}:places"]);

    let wire = proxy.wires().pop().unwrap();
    wire.set(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    let ours = queued("a", LockMode::Write);
    assert!(store.acquire(&ours).await.is_err());
    withdraw(&store, &ours).await;
    let executed = scripts_of(&server);
    wire.set(Fate::KIND);
    while scripts_of(&server) == executed {
        breathe().await;
    }
    assert_eq!(server.cli(&["EXISTS", "a{a}:queue"]), "0");
    release(&holder, &held).await;
    let next = queued("a", LockMode::Write);
    while is_busy(&holder, &next).await {
        breathe().await;
    }
    assert_eq!(server.cli(&["EXISTS", "a{a}:queue"]), "0");
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_granted_again_or_withdrawn() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = impatient(&proxy.url(IMPATIENT)).await;
    for (name, is_kept) in [("a", true), ("b", false)] {
        let ours = claim(name);
        let looked = answered(async || store.inspect(&ours.key).await).await;
        assert_eq!(looked.unwrap(), None);
        for wire in proxy.wires() {
            wire.set(Fate {
                swallow_down: true,
                ..Fate::KIND
            });
        }
        assert_eq!(
            store.acquire(&ours).await.unwrap_err().kind(),
            ErrorKind::InDoubt
        );
        // It was granted, or will be.
        let mut value = String::new();
        while value.is_empty() {
            breathe().await;
            value = server.cli(&["GET", name]);
        }
        assert!(value.starts_with(&ours.owner.expose()), "{value}");
        if is_kept {
            let held = wait_for(&store, &ours).await;
            assert_eq!(
                value.split(' ').nth(1),
                Some(&*held.token.to_string()),
                "the first token"
            );
        } else {
            withdraw(&store, &ours).await;
            assert_eq!(server.cli(&["EXISTS", name]), "0");
        }
    }
}

#[tokio::test]
async fn a_renewal_and_a_release_without_an_answer_are_unknown_and_can_be_asked_again() {
    let server = RedisServer::start();
    let store = impatient(&server.url(IMPATIENT)).await;
    let held = wait_for(&store, &claim_for("a", Duration::from_secs(30))).await;
    let grants = std::slice::from_ref(&held);
    let renew = async || loop {
        match store.renew(grants).await.pop() {
            Some(Renewed::Unknown(_)) => breathe().await,
            renewed => return renewed,
        }
    };
    assert!(matches!(renew().await, Some(Renewed::Extended(_))));
    server.pause();
    assert!(matches!(
        store.renew(grants).await[..],
        [Renewed::Unknown(_)]
    ));
    assert!(matches!(store.release(&held).await, Released::Unknown(_)));
    server.resume();
    // The release was only late.
    loop {
        match store.release(&held).await {
            Released::AlreadyGone => break,
            Released::Unknown(_) => breathe().await,
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(renew().await, Some(Renewed::Gone)));
}

#[tokio::test]
async fn a_connection_that_timed_out_is_thrown_away() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = impatient(&proxy.url(IMPATIENT)).await;
    let wires = proxy.wires();
    for wire in &wires {
        wire.set(Fate {
            hold_up: true,
            ..Fate::KIND
        });
    }
    assert!(store.inspect(&key("a")).await.is_err());
    let looked = answered(async || store.inspect(&key("a")).await).await;
    assert_eq!(looked.unwrap(), None);
    assert!(proxy.wires().len() > wires.len());

    // So is one whose caller ran out of patience before the store did; but not one whose caller
    // changed its mind.
    let patient = RedisStore::connect(&proxy.url(PATIENT)).await.unwrap();
    let count = proxy.wires().len();
    {
        let key = key("a");
        let mut asked = std::pin::pin!(patient.inspect(&key));
        assert!(futures_util::poll!(&mut asked).is_pending());
    }
    patient.inspect(&key("a")).await.unwrap();
    assert_eq!(proxy.wires().len(), count);
    proxy.wires()[count - 1].set(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    let clock = leasehold::clock::Clock::system().unwrap();
    let asked_for = key("a");
    let asked = clock.timeout(Duration::from_millis(150), patient.inspect(&asked_for));
    assert!(asked.await.is_none());
    patient.inspect(&key("a")).await.unwrap();
    assert_eq!(proxy.wires().len(), count + 1);
}

#[tokio::test]
async fn callers_that_are_impatient_add_up() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = RedisStore::connect(&proxy.url(PATIENT)).await.unwrap();
    let clock = leasehold::clock::Clock::system().unwrap();
    proxy.wires()[0].set(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    // None of them waits for as long as makes a connection suspect.
    let asked_for = key("a");
    let mut asked = 0;
    while proxy.wires().len() == 1 {
        let look = store.inspect(&asked_for);
        let _ = clock.timeout(Duration::from_millis(30), look).await;
        asked += 1;
        assert!(asked < 1_000, "the connection is never thrown away");
    }
    assert!(store.inspect(&asked_for).await.is_ok());
}

/// One life of a store over a wire that is cut somewhere: connect, acquire, renew, release.
async fn live(proxy: &Proxy) -> (Claim, bool) {
    let ours = claim("a");
    let Ok(store) = RedisStore::connect(&proxy.url(PATIENT)).await else {
        return (ours, false);
    };
    let Ok(leasehold::store::Acquired::Granted(held)) = store.acquire(&ours).await else {
        return (ours, false);
    };
    // The heartbeat has a wire of its own, which is not cut.
    let is_renewed = matches!(
        store.renew(std::slice::from_ref(&held)).await[..],
        [Renewed::Extended(_)]
    );
    let is_released = matches!(store.release(&held).await, Released::Released);
    (ours, is_renewed && is_released)
}

#[tokio::test]
async fn a_connection_cut_at_any_byte_leaves_no_lock_once_the_claim_is_withdrawn() {
    let server = RedisServer::start();
    let operator = patient(&server).await;
    let proxy = Proxy::before(server.port());
    assert!(live(&proxy).await.1);
    let (up, down) = proxy.wires()[0].carried();
    // The steps towards the server are short: every seventh byte; the answers are long only at the
    // start.
    let cuts_up = (0..=up + 1).step_by(7).map(|cut_up| Fate {
        cut_up,
        ..Fate::KIND
    });
    let mut cuts_down: Vec<_> = (0..down).step_by(211).collect();
    cuts_down.extend(down.saturating_sub(80)..=down + 1);
    let cuts_down = cuts_down.into_iter().map(|cut_down| Fate {
        cut_down,
        ..Fate::KIND
    });
    let (mut cut, mut whole) = (0, 0);
    for fate in cuts_up.chain(cuts_down) {
        proxy.next(fate);
        // Scripts are unknown in one life and known in the next, so that both ways of calling are
        // cut.
        if cut % 2 == 0 {
            server.cli(&["SCRIPT", "FLUSH"]);
        }
        let (ours, is_whole) = live(&proxy).await;
        *(if is_whole { &mut whole } else { &mut cut }) += 1;
        operator.withdraw(&ours).await.unwrap();
        assert_eq!(operator.inspect(&ours.key).await.unwrap(), None, "{fate:?}");
        assert!(operator.acquire(&ours).await.is_err(), "{fate:?}");
    }
    assert!(
        cut > 100 && whole > 0,
        "{cut} lives were cut, {whole} were not"
    );
}

#[tokio::test]
async fn wake_ups_that_never_come_delay_nobody_who_polls() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = RedisStore::connect(&proxy.url(PATIENT)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let mut hint = store.subscribe(&claim("a")).await.unwrap();
    let subscriber = proxy.wires().pop().unwrap();
    subscriber.set(Fate {
        swallow_down: true,
        ..Fate::KIND
    });
    release(&store, &held).await;
    assert!(!is_busy(&store, &once(claim("a"))).await);
    assert!(futures_util::poll!(&mut hint).is_pending());
    subscriber.cut();
    hint.await;
}

/// The server is made a replica of nobody that answers: it keeps its data, and takes no writes.
fn demote(server: &RedisServer) {
    let nobody = free_port().to_string();
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &nobody]), "OK");
}

fn promote(server: &RedisServer) {
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
}

#[tokio::test]
async fn a_heartbeat_leaves_a_master_that_was_made_a_replica() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(PATIENT)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let renew = async || store.renew(std::slice::from_ref(&held)).await.pop();
    assert!(matches!(renew().await, Some(Renewed::Extended(_))));
    demote(&server);
    assert!(matches!(renew().await, Some(Renewed::Unknown(_))));
    // Nothing is sent any more: a new connection has learned what the server is now.
    match renew().await {
        Some(Renewed::Unknown(error)) => {
            assert!(error.to_string().contains("is a replica"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    promote(&server);
    assert!(matches!(renew().await, Some(Renewed::Extended(_))));
}

#[tokio::test]
async fn an_attempt_that_waits_for_replicas_leaves_a_master_that_was_made_a_replica() {
    let server = RedisServer::start();
    let query = format!("{PATIENT}&replicas=1&replica_wait=10ms");
    let store = RedisStore::connect(&server.url(&query)).await.unwrap();
    let refusal = async || {
        store
            .acquire(&once(claim("a")))
            .await
            .unwrap_err()
            .to_string()
    };
    assert!(refusal().await.contains("too few replicas"));
    demote(&server);
    assert!(refusal().await.contains("READONLY"));
    let reported = refusal().await;
    assert!(reported.contains("is a replica"), "{reported}");
    promote(&server);
    assert!(refusal().await.contains("too few replicas"));
}

#[tokio::test]
async fn to_renew_nothing_asks_nobody() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = RedisStore::connect(&proxy.url(PATIENT)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let held = std::slice::from_ref(&held);
    assert!(matches!(
        store.renew(held).await[..],
        [Renewed::Extended(_)]
    ));
    let wires = proxy.wires().len();
    assert!(store.renew(&[]).await.is_empty());
    assert!(matches!(
        store.renew(held).await[..],
        [Renewed::Extended(_)]
    ));
    assert_eq!(proxy.wires().len(), wires);
}

#[tokio::test]
async fn a_subscriber_connection_that_went_silent_is_noticed_and_made_again() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let url = proxy.url("restart_quarantine=off&timeout_millis=3000");
    let store = RedisStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim_for("a", Duration::from_secs(30))).await;
    let hint = store.subscribe(&claim("a")).await.unwrap();
    // A router on the way has forgotten the connection: nothing goes through, and nobody is
    // notified.
    proxy.wires().pop().unwrap().set(Fate {
        hold_up: true,
        swallow_down: true,
        ..Fate::KIND
    });
    // Real time, since silence is known by how long it lasts: some seconds, of which the limit is
    // far.
    let clock = leasehold::clock::Clock::system().unwrap();
    let noticed = clock.timeout(Duration::from_secs(60), hint).await;
    assert!(noticed.is_some(), "the silence was never noticed");
    // Its channel is known, and is subscribed to anew all the same.
    let next = claim("a");
    let hint = store.subscribe(&next).await.unwrap();
    assert!(is_busy(&store, &next).await);
    release(&store, &held).await;
    hint.await;
}

#[tokio::test]
async fn a_connection_that_takes_longer_than_any_caller_waits_is_made_all_the_same() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = RedisStore::connect(&proxy.url(PATIENT)).await.unwrap();
    let held = grant(&store, &claim_for("a", Duration::from_secs(30))).await;
    // Real time, as a manager measures it out: enough for one question and its answer, and not for
    // the several of which a connection is made.
    proxy.next(Fate {
        delay: Duration::from_millis(60),
        ..Fate::KIND
    });
    let clock = leasehold::clock::Clock::system().unwrap();
    let limit = Duration::from_millis(200);
    let mut asked = 0;
    loop {
        let renewal = store.renew(std::slice::from_ref(&held));
        let renewed = clock.timeout(limit, renewal).await;
        if renewed.is_some_and(|all| matches!(all[..], [Renewed::Extended(_)])) {
            break;
        }
        asked += 1;
        assert!(asked < 300, "the heartbeat's connection is never made");
    }
    let (mut asked, next) = (0, claim("a"));
    let hint = loop {
        let subscribing = clock.timeout(limit, store.subscribe(&next)).await;
        if let Some(Ok(hint)) = subscribing {
            break hint;
        }
        asked += 1;
        assert!(asked < 300, "the subscriber's connection is never made");
    };
    assert!(is_busy(&store, &next).await);
    release(&store, &held).await;
    hint.await;
}
