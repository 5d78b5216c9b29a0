//! What many callers cost a server while something is down: connections, scripts and quarantines
//! stay few.
//!
//! These tests count what happens within real seconds, since the servers, the limits on connecting
//! and the polls count by real clocks.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::claims::{claim_for, grant, is_busy, queued, release};
use crate::other_holder::age;
use crate::server::canary::CANARY;
use crate::server::cluster::RedisCluster;
use crate::server::{RedisServer, breathe};
use leasehold::clock::Clock;
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::{LockMode, Store};
use leasehold::{LockManager, Settings};

const WHILE_COUNTED: Duration = Duration::from_secs(3);

/// Callers that ask again and again, each for a lock of its own, until the time is over.
async fn crowd(locks: &LockManager, names: impl Iterator<Item = String>) {
    let clock = Clock::system().unwrap();
    let end = clock.stamp().plus(WHILE_COUNTED);
    let callers: Vec<_> = names
        .map(|name| {
            let (locks, clock) = (locks.clone(), clock.clone());
            tokio::spawn(async move {
                while !end.since(&clock.stamp()).is_zero() {
                    let left = end.since(&clock.stamp());
                    if let Ok(Some(guard)) = locks.lock(name.as_str()).acquire_within(left).await {
                        drop(guard.release().await);
                    }
                    breathe().await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn two_hundred_callers_dial_a_server_that_closes_every_connection_a_few_times() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    // Ends with the process.
    std::thread::spawn(move || {
        for _closed_at_once in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let url = format!("redis://127.0.0.1:{port}?restart_quarantine=off");
    let store = RedisStore::member(RedisOptions::parse(&url).unwrap()).unwrap();
    let locks = LockManager::new(store).unwrap();
    crowd(&locks, (0..200).map(|number| format!("k{number}"))).await;
    let dials = dials.load(Ordering::Relaxed);
    println!("{dials} connections");
    assert!((2..=20).contains(&dials), "{dials}");
}

fn connections(server: &RedisServer) -> u64 {
    number(server, "stats", "total_connections_received:")
}

fn number(server: &RedisServer, section: &str, name: &str) -> u64 {
    let info = server.cli(&["INFO", section]);
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    let digits = line.map(|line| line.split(',').next().unwrap_or_default());
    digits.map_or(0, |digits| digits.trim().parse().unwrap())
}

#[tokio::test]
async fn a_dead_node_of_a_cluster_costs_the_others_few_connections() {
    let mut cluster = RedisCluster::of_masters(3);
    let names: Vec<_> = (0..3).map(|index| cluster.names_at(index, 34)).collect();
    let url = cluster.url("prefix=app&restart_quarantine=off");
    let locks = LockManager::connect(&url).await.unwrap();
    cluster.nodes[0].kill();
    let before: Vec<_> = cluster.nodes[1..].iter().map(connections).collect();
    crowd(&locks, names.into_iter().flatten()).await;
    for (node, before) in cluster.nodes[1..].iter().zip(before) {
        // One is that of the question itself.
        let new = connections(node) - before - 1;
        println!("{new} connections to a healthy node");
        assert!(new <= 20, "{new}");
    }
}

/// However slow the machine is, nothing is asked for again.
fn patient() -> Settings {
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(30);
    settings.request_timeout = Duration::from_secs(30);
    settings
}

/// How many scripts fifty fair waiters cost in two seconds.
async fn scripts_of_waiters(server: &RedisServer, url: &str) -> u64 {
    let mut settings = patient();
    settings.wait = Duration::from_secs(2);
    let locks = LockManager::builder_for_url(url, settings).await.unwrap();
    let locks = locks.build().unwrap();
    let held = locks.lock("a").acquire().await.unwrap();
    let scripts = || number(server, "commandstats", "cmdstat_evalsha:calls=");
    let before = scripts();
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.lock("a").fair().acquire().await.is_err() })
        })
        .collect();
    for waiter in waiters {
        assert!(waiter.await.unwrap(), "it waited in vain");
    }
    let scripts = scripts() - before;
    drop(held.release().await);
    scripts
}

#[tokio::test]
async fn a_plain_waiter_costs_one_request_for_each_poll_and_no_tokens() {
    const POLL: Duration = Duration::from_millis(500);
    let server = RedisServer::start();
    let url = server.url("prefix=app&restart_quarantine=off");
    let holder = LockManager::connect(&url).await.unwrap();
    let held = holder.lock("a").acquire().await.unwrap();
    let begun = number(&server, "commandstats", "cmdstat_evalsha:calls=");
    let tokens = || number(&server, "commandstats", "cmdstat_incr:calls=");
    let taken = tokens();
    let mut settings = patient();
    settings.max_poll_interval = POLL;
    settings.wait = Duration::from_secs(60);
    let locks = LockManager::builder_for_url(&url, settings).await.unwrap();
    let lock = locks.build().unwrap().lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let scripts = || number(&server, "commandstats", "cmdstat_evalsha:calls=");
    // It looks at the lock, and then takes its place.
    while scripts() < begun + 2 {
        breathe().await;
    }
    let (before, clock) = (scripts(), Clock::system().unwrap());
    let began = clock.stamp();
    while clock.stamp().since(&began) < WHILE_COUNTED {
        breathe().await;
    }
    let polls = scripts() - before;
    // The first one may be due in the first moment.
    let most = clock.stamp().since(&began).as_millis() / POLL.as_millis() + 1;
    assert!(
        u128::from(polls) <= most,
        "{polls} requests, and {most} polls"
    );
    drop(held.release().await);
    let next = waiting.await.unwrap();
    // One was taken when it looked at the lock, and none by a poll.
    assert!(tokens() <= taken + 2, "polls take tokens");
    drop(next.release().await);
}

/// A manager that does not poll.
async fn without_polls(server: &RedisServer) -> LockManager {
    let url = server.url("prefix=app&restart_quarantine=off");
    let mut settings = patient();
    settings.max_poll_interval = Duration::from_secs(60);
    settings.wait = Duration::from_secs(60);
    let locks = LockManager::builder_for_url(&url, settings).await;
    locks.unwrap().build().unwrap()
}

/// How many scripts a round of fair waiters costs, of which each holds once: those that enter the
/// queue, and those that leave it.
async fn scripts_of_a_round(waiters: u64) -> (u64, u64) {
    let server = RedisServer::start();
    let locks = without_polls(&server).await;
    let held = locks.lock("a").acquire().await.unwrap();
    let scripts = || number(&server, "commandstats", "cmdstat_evalsha:calls=");
    let before = scripts();
    let waiting: Vec<_> = (0..waiters)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let guard = locks.lock("a").fair().acquire().await.unwrap();
                drop(guard.release().await);
            })
        })
        .collect();
    // Each subscribes before it asks: this process holds the lock.
    while scripts() - before < waiters {
        breathe().await;
    }
    let entered = scripts() - before;
    drop(held.release().await);
    for waiter in waiting {
        waiter.await.unwrap();
    }
    (entered, scripts() - before - entered)
}

#[tokio::test]
async fn a_release_wakes_only_whose_turn_it_is_however_many_wait() {
    for waiters in [50, 100] {
        let (entered, left) = scripts_of_a_round(waiters).await;
        println!("{waiters} waiters: {entered} scripts to enter, {left} to leave");
        assert!(
            entered + left <= 3 * waiters + 10,
            "{waiters}: {entered} + {left}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_waiters_of_four_managers_cost_three_requests_each_and_no_connection() {
    const OF_EACH: u64 = 500;
    let server = RedisServer::start();
    let holder = without_polls(&server).await;
    let held = holder.lock("a").acquire().await.unwrap();
    let (mut managers, mut waiting) = (Vec::new(), Vec::new());
    let scripts = || number(&server, "commandstats", "cmdstat_evalsha:calls=");
    let begun = scripts();
    for _ in 0..4 {
        let locks = without_polls(&server).await;
        for _ in 0..OF_EACH {
            let lock = locks.lock("a").fair();
            waiting.push(tokio::spawn(async move {
                drop(lock.acquire().await.unwrap().release().await);
            }));
        }
        managers.push(locks);
    }
    let waiters = 4 * OF_EACH;
    while scripts() - begun < waiters {
        breathe().await;
    }
    let connected = connections(&server);
    drop(held.release().await);
    for waiter in waiting {
        waiter.await.unwrap();
    }
    let asked = scripts() - begun;
    // This question has a connection of its own.
    let new = connections(&server) - connected - 1;
    println!("{waiters} waiters: {asked} requests, {new} new connections");
    assert!(asked <= 3 * waiters, "{asked}");
    assert!(new <= 4, "{new} connections");
}

#[tokio::test]
async fn a_plain_waiter_takes_its_place_when_it_has_subscribed() {
    const WAITERS: u64 = 10;
    let server = RedisServer::start();
    let holder = without_polls(&server).await;
    let held = holder.lock("a").acquire().await.unwrap();
    let scripts = || number(&server, "commandstats", "cmdstat_evalsha:calls=");
    let (mut managers, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..WAITERS {
        let locks = without_polls(&server).await;
        // It judges the server, and the server learns the scripts.
        let other = locks.lock("other").fair().acquire().await.unwrap();
        drop(other.release().await);
        managers.push(locks);
    }
    let before = scripts();
    for locks in &managers {
        let lock = locks.lock("a");
        waiting.push(tokio::spawn(async move {
            drop(lock.acquire().await.unwrap().release().await);
        }));
    }
    while server.cli(&["ZCARD", "app:a{app:a}:queue"]) != WAITERS.to_string() {
        breathe().await;
    }
    let entered = scripts() - before;
    drop(held.release().await);
    for waiter in waiting {
        waiter.await.unwrap();
    }
    let left = scripts() - before - entered;
    println!("{entered} scripts to enter, {left} to leave");
    // Each looks at the lock, subscribes and takes its place; later it asks, and releases.
    assert_eq!(entered, 2 * WAITERS);
    assert!(left <= 2 * WAITERS + 5, "{left}");
}

/// The channel and the text of each message, until one on the channel `end`.
fn messages_of(heard: &mut ::redis::PubSub<'_>) -> Vec<(String, String)> {
    let messages = std::iter::from_fn(|| {
        let message = heard.get_message().unwrap();
        let channel = message.get_channel_name().to_owned();
        (channel != "end").then(|| (channel, message.get_payload().unwrap()))
    });
    messages.collect()
}

#[tokio::test]
async fn a_handover_is_heard_by_whose_turn_it_is_and_by_no_other_process() {
    let server = RedisServer::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let mut by_hand = ::redis::Client::open(url)
        .unwrap()
        .get_connection()
        .unwrap();
    let mut heard = by_hand.as_pubsub();
    heard.psubscribe("*").unwrap();

    let url = server.url("prefix=app&restart_quarantine=off");
    let store = RedisStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim_for("a", Duration::from_secs(10))).await;
    let waiting = [(); 5].map(|()| queued("a", LockMode::Exclusive));
    for claim in &waiting {
        assert!(is_busy(&store, claim).await);
    }
    release(&store, &held).await;
    let held = grant(&store, &waiting[0]).await;
    store.withdraw(&held.claim).await.unwrap();
    store.withdraw(&waiting[1]).await.unwrap();
    // Whoever asks hands over what ran out.
    server.cli(&["DEL", "app:a"]);
    assert!(is_busy(&store, &waiting[4]).await);
    let held = grant(&store, &waiting[3]).await;
    release(&store, &held).await;
    let held = grant(&store, &waiting[4]).await;
    release(&store, &held).await;
    server.cli(&["PUBLISH", "end", ""]);

    let expected = waiting
        .iter()
        .map(|claim| {
            let owner = claim.owner.expose().to_string();
            (format!("app:{{leasehold}}:wake:{}", &owner[24..]), owner)
        })
        .collect::<Vec<_>>();
    let heard = messages_of(&mut heard).into_iter();
    let heard: Vec<_> = (heard.map(|(channel, text)| (channel, text[..32].to_owned()))).collect();
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn the_waiters_of_one_manager_share_a_channel_and_those_of_two_do_not() {
    let server = RedisServer::start();
    let url = server.url("restart_quarantine=off");
    let holder = LockManager::connect(&url).await.unwrap();
    let held = holder.lock("a").acquire().await.unwrap();
    let (mut managers, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let locks = LockManager::connect(&url).await.unwrap();
        managers.push(locks.clone());
        for _ in 0..2 {
            let lock = locks.lock("a").fair();
            waiting.push(tokio::spawn(async move {
                let guard = lock.acquire_within(Duration::from_secs(60)).await;
                drop(guard.unwrap().unwrap().release().await);
            }));
        }
    }
    while server.cli(&["ZCARD", "a{a}:queue"]) != "6" {
        breathe().await;
    }
    drop(held.release().await);
    for waiter in waiting {
        waiter.await.unwrap();
    }
    // One for each manager, for as long as it lives.
    let channels = server.cli(&["PUBSUB", "CHANNELS", "*"]);
    assert_eq!(channels.lines().count(), 3, "{channels}");
}

#[tokio::test]
async fn fair_waiters_that_may_not_subscribe_poll_rarely() {
    let server = RedisServer::start();
    let password = format!(">{CANARY}");
    let rules = ["~app:*", "resetchannels", "+@all"];
    server.cli(&[&["ACL", "SETUSER", "me", "on", &password][..], &rules].concat());
    let url = server.url("prefix=app&restart_quarantine=off");
    let with_messages = scripts_of_waiters(&server, &url).await;
    let refused = url.replace("127.0.0.1", &format!("me:{CANARY}@127.0.0.1"));
    let without = scripts_of_waiters(&server, &refused).await;
    println!("{without} scripts without messages, {with_messages} with them");
    assert!(with_messages > 0);
    assert!(
        without <= 3 * with_messages,
        "{without} without messages, {with_messages} with them"
    );
}

#[tokio::test]
async fn a_connection_that_was_made_to_a_young_server_grows_old_with_it() {
    let server = RedisServer::start();
    let url = server.url("prefix=app&max_ttl=2s");
    let store = RedisStore::connect(&url).await.unwrap();
    while age(&server) < 4 {
        breathe().await;
    }
    let _held = grant(&store, &claim_for("a", Duration::from_millis(500))).await;
}

#[tokio::test]
async fn a_fair_claim_that_was_busy_before_there_was_a_marker_causes_no_quarantine() {
    let server = RedisServer::start();
    while age(&server) < 3 {
        breathe().await;
    }
    server.cli(&["SET", "app:a", "a client of another kind"]);
    let store = RedisStore::connect(&server.url("prefix=app&max_ttl=1s")).await;
    let store = store.unwrap();
    let mut ours = queued("a", LockMode::Exclusive);
    ours.ttl = Duration::from_millis(500);
    ours.place_ttl = Duration::from_secs(5);
    assert!(is_busy(&store, &ours).await);
    server.cli(&["DEL", "app:a"]);
    let _held = grant(&store, &ours).await;
}

#[tokio::test]
async fn a_marker_that_a_busy_fair_claim_has_seen_is_missed_when_it_is_gone() {
    let server = RedisServer::start();
    while age(&server) < 8 {
        breathe().await;
    }
    let url = server.url("prefix=app&max_ttl=6s");
    let ttl = Duration::from_secs(6);
    let holder = RedisStore::connect(&url).await.unwrap();
    let _held = grant(&holder, &claim_for("a", ttl)).await;
    let store = RedisStore::connect(&url).await.unwrap();
    let mut ours = queued("a", LockMode::Exclusive);
    ours.ttl = ttl;
    assert!(is_busy(&store, &ours).await);
    // As a flush that the statistics do not show.
    let [marker, tokens] = ["app:{leasehold}:marker", "app:{leasehold}:token"];
    server.cli(&["DEL", "app:a", marker, tokens]);
    assert!(is_busy(&store, &ours).await);
    assert_ne!(server.cli(&["EXISTS", "app:{leasehold}:marker"]), "0");
}
