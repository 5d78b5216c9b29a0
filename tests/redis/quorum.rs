//! Redis servers as members of a quorum.

use std::time::Duration;

use crate::claims::{claim, claim_for, grant, key, release};
use crate::meddler::{Habit, Meddler};
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe};
use leasehold::clock::Clock;
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::quorum::{Member, Quorum, Raised, Vote};
use leasehold::store::{Acquired, Released, Renewed, Revoke, Store};
use leasehold::{ErrorKind, FencingToken};

const FRESH: &str = "restart_quarantine=off";

pub(crate) fn member(server: &RedisServer, query: &str) -> RedisStore {
    let options = RedisOptions::parse(&server.url(query)).unwrap();
    RedisStore::member(options).unwrap()
}

pub(crate) fn quorum(servers: &[RedisServer], query: &str) -> Quorum<RedisStore> {
    Quorum::new(servers.iter().map(|server| member(server, query))).unwrap()
}

fn start(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

async fn vote(
    member: &RedisStore,
    claim: &leasehold::store::Claim,
    floor: Option<u64>,
) -> (u64, u64) {
    let floor = floor.map(|floor| FencingToken::new(floor).unwrap());
    match member.vote(claim, floor).await.unwrap() {
        Vote {
            acquired: Acquired::Granted(held),
            micros,
            ..
        } => (held.token.number(), micros),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_look_that_a_majority_refuses_is_denied() {
    let mut servers = start(1);
    for _ in 0..2 {
        servers.push(RedisServer::start_with(&["--requirepass", CANARY]));
    }
    let error = quorum(&servers, FRESH)
        .inspect(&key("a"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    // One that refuses is outvoted.
    servers.push(RedisServer::start());
    servers.push(RedisServer::start());
    let reported = quorum(&servers, FRESH).inspect(&key("a")).await.unwrap();
    assert!(reported.is_none(), "{reported:?}");
}

#[tokio::test]
async fn a_minority_that_is_stopped_or_gone_is_not_needed() {
    let mut servers = start(5);
    let locks = quorum(&servers, FRESH);
    let held = grant(&locks, &claim("before")).await;
    servers[1].pause();
    servers[3].kill();
    assert!(matches!(
        locks.renew(std::slice::from_ref(&held)).await[..],
        [Renewed::Extended(_)]
    ));
    release(&locks, &held).await;
    let held = grant(&locks, &claim("a")).await;
    // Built when they are down already.
    let other = quorum(&servers, FRESH);
    let lost = claim("a");
    let answer = other.acquire(&lost).await;
    assert!(matches!(answer, Ok(Acquired::Busy { .. })), "{answer:?}");
    // A vote that it asked for may still be under way, and would be one too few for the next claim.
    other.withdraw(&lost).await.unwrap();
    release(&locks, &held).await;
    let next = grant(&other, &claim("a")).await;
    assert!(next.token > held.token);
    servers[1].resume();
    release(&other, &next).await;
}

#[tokio::test]
async fn a_member_gives_a_token_of_at_least_what_it_is_asked_for() {
    let server = RedisServer::start();
    let one = member(&server, FRESH);
    let ours = claim("a");
    let (_, micros) = vote(&one, &ours, None).await;
    one.withdraw(&ours).await.unwrap();
    let mut asked = micros;
    for number in 0.. {
        assert!(
            number < 20,
            "each time half a second passed before the answer"
        );
        asked += 500_000;
        let (token, now) = vote(&one, &claim(&format!("b{number}")), Some(asked)).await;
        if now < asked {
            assert_eq!(token, asked);
            break;
        }
        // The floor was in the past already.
        assert!(token >= asked);
        asked = now;
    }
    // A floor too far ahead of the member's time is taken for none. One counter serves all keys.
    let (token, _) = vote(&one, &claim("c"), Some(asked + 60_000_000)).await;
    assert_eq!(token, asked + 1);
}

#[tokio::test]
async fn a_quorum_says_about_how_long_a_lock_has_been_held() {
    let servers = start(3);
    let store = quorum(&servers, FRESH);
    let clock = Clock::system().unwrap();
    let held = grant(&store, &claim("a")).await;
    let granted_at = clock.stamp();
    while clock.stamp().since(&granted_at) < Duration::from_millis(200) {
        breathe().await;
    }
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert!(record.held_for.unwrap() >= Duration::from_millis(100));
    assert!(record.held_for_is_estimate);
    release(&store, &held).await;
}

#[tokio::test]
async fn a_member_is_raised_while_the_claim_holds_and_not_after() {
    let server = RedisServer::start();
    let one = member(&server, FRESH);
    let ours = claim("a");
    let (token, micros) = vote(&one, &ours, None).await;
    let larger = FencingToken::new(token + 400_000).unwrap();
    let said = server.cli(&["GET", "a"]);
    assert_eq!(one.raise(&ours, larger).await.unwrap(), Raised::Raised);
    // Only the token is another: the time of the grant stays.
    let raised = said.replace(&token.to_string(), &larger.to_string());
    assert_ne!(raised, said);
    assert_eq!(server.cli(&["GET", "a"]), raised);
    assert_eq!(
        one.raise(&ours, FencingToken::new(token).unwrap())
            .await
            .unwrap(),
        Raised::Raised
    );
    assert_eq!(
        vote(&one, &ours, None).await.0,
        larger.number(),
        "never lowered"
    );
    assert_eq!(
        one.inspect(&ours.key).await.unwrap().unwrap().token,
        Some(larger)
    );

    let ahead = FencingToken::new(micros + 60_000_000).unwrap();
    assert_eq!(
        one.raise(&ours, ahead).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    one.withdraw(&ours).await.unwrap();
    assert_eq!(one.raise(&ours, larger).await.unwrap(), Raised::Gone);
    assert!(vote(&one, &claim("a"), None).await.0 > larger.number());
}

#[tokio::test]
async fn a_member_that_forgot_is_quarantined_for_the_skew_beyond_the_longest_ttl() {
    let clock = Clock::system().unwrap();
    let began = clock.stamp();
    let server = RedisServer::start();
    let query = "max_ttl=6s";
    let max_ttl = Duration::from_secs(6);
    let ours = claim_for("a", max_ttl);
    // As a store of its own it waits for 6 s from its start at most, as a member for a second more.
    let Acquired::NotReady { retry_after: left } = member(&server, query)
        .vote(&ours, None)
        .await
        .unwrap()
        .acquired
    else {
        panic!("a young server without persistence is not trusted");
    };
    let waited = clock.stamp().since(&began);
    let skew = Duration::from_secs(1);
    assert!(left + waited >= max_ttl + skew, "{left:?} {waited:?}");
    let one = member(&server, query);
    loop {
        match one.vote(&ours, None).await.unwrap().acquired {
            Acquired::Granted(_) => break,
            _ => breathe().await,
        }
    }
}

#[tokio::test]
async fn what_a_quorum_cannot_is_refused_with_the_names_of_stores_that_can() {
    let servers = start(3);
    let store = quorum(&servers, FRESH);
    let how = leasehold::store::Revoke::Now;
    let revoked = store.revoke(&claim("a").key, how).await;
    let locks = leasehold::LockManager::new(store).unwrap();
    for refused in [
        revoked.map(drop),
        locks.revoke("a", how).await.map(drop),
        locks.lock("a").fair().acquire().await.map(drop),
        locks.read_write("a").read().await.map(drop),
        locks.read_write("a").write().await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let reported = error.to_string();
        assert!(reported.contains("store=quorum"), "{reported}");
        assert!(
            reported.contains("MemoryStore") && reported.contains("RedisStore"),
            "{reported}"
        );
    }
}

#[tokio::test]
async fn a_member_that_is_connected_to_after_the_attempt_was_decided_gets_no_vote() {
    let servers = start(3);
    // It accepts connections, and answers nothing on them.
    servers[2].pause();
    let locks = quorum(&servers, "restart_quarantine=off&timeout_millis=20000");
    let held = grant(&locks, &claim("a")).await;
    release(&locks, &held).await;
    servers[2].resume();
    // A connection begins with a look at the server, and at its settings.
    let is_connected = || servers[2].cli(&["CLIENT", "LIST"]).contains("cmd=config");
    while !is_connected() {
        breathe().await;
    }
    // A vote would follow right behind what the connection begins with.
    for _ in 0..20 {
        breathe().await;
    }
    // It looks by the text of a script; a vote names its script by the hash.
    let stats = servers[2].cli(&["INFO", "commandstats"]);
    assert!(!stats.contains("cmdstat_evalsha"), "{stats}");
}

#[tokio::test]
async fn servers_that_exchange_their_addresses_keep_their_votes() {
    let servers = start(2);
    let addresses = [0, 1].map(|at| Meddler::before(servers[at].port(), Habit::RefusesInfo));
    let [one, other] = addresses.each_ref().map(Meddler::port);
    let url = format!("redlock://127.0.0.1:{one},127.0.0.1:{other}/0?{FRESH}");
    let locks = leasehold::LockManager::connect(&url).await.unwrap();
    drop(locks.lock("a").acquire().await.unwrap().release().await);
    for at in [0, 1] {
        addresses[at].moves_to(servers[1 - at].port());
    }
    for server in &servers {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    let mut is_held = false;
    for _ in 0..10 {
        let got = locks.lock("a").acquire_within(Duration::from_secs(1)).await;
        is_held = is_held || matches!(got, Ok(Some(_)));
    }
    assert!(is_held, "each of them is taken for the other one");
}

#[tokio::test]
async fn a_server_with_two_addresses_has_one_vote() {
    let server = RedisServer::start();
    let port = server.port();
    let url = format!("redlock://127.0.0.1:{port},localhost:{port}/0?{FRESH}");
    let locks = leasehold::LockManager::connect(&url).await.unwrap();
    let got = locks.lock("a").acquire_within(Duration::from_secs(3)).await;
    assert!(
        !matches!(got, Ok(Some(_))),
        "one server is no majority of two"
    );
    let error = got.unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        why.contains("two addresses of a quorum are one server"),
        "{why}"
    );

    let other = RedisServer::start();
    let url = format!(
        "redlock://127.0.0.1:{port},localhost:{port},127.0.0.1:{}/0?{FRESH}",
        other.port()
    );
    let locks = leasehold::LockManager::connect(&url).await.unwrap();
    let held = locks.lock("a").acquire().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "a"]), "1");
    assert_eq!(other.cli(&["EXISTS", "a"]), "1");
    drop(held.release().await);
}

/// What a member may have forgotten is a lease by another member's clock. So it waits for a second
/// more, whatever is asked first.
#[tokio::test]
async fn a_member_that_restarted_waits_as_long_whether_a_vote_or_an_end_is_asked_of_it_first() {
    const QUERY: &str = "prefix=app&max_ttl=500ms";
    const WAIT: u64 = 1_500;
    let mut server = RedisServer::start();
    let of_before = member(&server, QUERY);
    let held = loop {
        let claim = claim_for("a", Duration::from_millis(200));
        match of_before.vote(&claim, None).await.map(|vote| vote.acquired) {
            Ok(Acquired::Granted(held)) => break held,
            _ => breathe().await,
        }
    };
    for has_voted in [true, false] {
        server.restart();
        let time = server.cli(&["TIME"]);
        let mut time = time.lines().map(|number| number.parse::<u64>().unwrap());
        let before = time.next().unwrap() * 1_000 + time.next().unwrap() / 1_000;
        if has_voted {
            while matches!(of_before.release(&held).await, Released::Unknown(_)) {
                breathe().await;
            }
        } else {
            let of_now = member(&server, QUERY);
            let _nobody_holds = of_now.revoke(&key("a"), Revoke::Now).await.unwrap();
        }
        let marker = server.cli(&["GET", "app:{leasehold}:marker"]);
        let until: u64 = marker.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(until >= before + WAIT, "{marker} at {before}");
    }
}
