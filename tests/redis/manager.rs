//! A lock manager on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::in_doubt::end_in_doubt;
use crate::one_time::each_fire_time_is_done_once;
use crate::proxy::{Fate, Proxy};
use crate::server::{RedisServer, breathe, patiently};
use leasehold::clock::Clock;
use leasehold::redis::{RedisBatch, RedisFence, RedisStore};
use leasehold::run::CommitProof;
use leasehold::{Ended, LockManager, Settings};

const FRESH: &str = "restart_quarantine=off";

async fn manager(url: &str, change: impl FnOnce(&mut Settings)) -> LockManager {
    let mut settings = Settings::default();
    // Longer than a busy machine holds an answer up.
    settings.request_timeout = Duration::from_secs(10);
    change(&mut settings);
    let store = RedisStore::connect(url).await.unwrap();
    LockManager::builder(store)
        .settings(settings)
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_two_managers_take_turns_one_at_a_time() {
    let server = RedisServer::start();
    let inside = Arc::new(AtomicU32::new(0));
    let mut callers = Vec::new();
    for _ in 0..2 {
        let locks = manager(&server.url(FRESH), |_| {}).await;
        for _ in 0..4 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            callers.push(tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..20 {
                    let guard = locks.lock("turns").acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    tokio::task::yield_now().await;
                    assert!(guard.token().number() >= last);
                    last = guard.token().number();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard.release().await);
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(server.cli(&["EXISTS", "turns"]), "0");
}

#[tokio::test]
async fn a_one_time_job_is_done_by_one_of_two_managers() {
    let server = RedisServer::start();
    let ours = manager(&server.url(FRESH), |_| {}).await;
    let theirs = manager(&server.url(FRESH), |_| {}).await;
    each_fire_time_is_done_once(&ours, &theirs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_that_arrive_twice_let_nobody_in_twice() {
    let server = RedisServer::start();
    let inside = Arc::new(AtomicU32::new(0));
    let (mut callers, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let proxy = Proxy::before(server.port());
        proxy.all(Fate {
            doubles_messages: true,
            ..Fate::KIND
        });
        let url = proxy.url(&patiently(FRESH));
        let locks = manager(&url, |_| {}).await;
        proxies.push(proxy);
        for number in 0..4 {
            let lock = locks.lock("a");
            let lock = if number % 2 == 0 { lock.fair() } else { lock };
            let inside = Arc::clone(&inside);
            callers.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard.release().await);
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let wires = proxies.iter().flat_map(Proxy::wires);
    let doubled: usize = wires.map(|wire| wire.doubled()).sum();
    assert!(doubled > 20, "{doubled}");
    assert_eq!(server.cli(&["EXISTS", "a"]), "0");
}

#[tokio::test]
async fn a_turn_among_waiters_is_three_requests() {
    const TURNS: usize = 30;
    let server = RedisServer::start();
    // No waiter of a slow machine polls.
    let patient = |settings: &mut Settings| settings.max_poll_interval = Duration::from_secs(60);
    let mut callers = Vec::new();
    for _ in 0..2 {
        let locks = manager(&server.url(FRESH), patient).await;
        // So that another one of its process waits whenever one asks.
        for _ in 0..3 {
            let lock = locks.lock("a").fair();
            callers.push(async move {
                for _ in 0..TURNS {
                    drop(lock.acquire().await.unwrap().release().await);
                }
            });
        }
    }
    let turns = callers.len() * TURNS;
    futures_util::future::join_all(callers).await;
    let stats = server.cli(&["INFO", "commandstats"]);
    let mut lines = stats.lines();
    let calls = lines.find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls: usize = calls.unwrap().split(',').next().unwrap().parse().unwrap();
    // The first turn of each costs more.
    assert!(calls < 7 * turns / 2, "{calls} for {turns} turns");
}

#[tokio::test]
async fn sixteen_tasks_ask_the_server_for_less_than_a_tenth_of_their_sections() {
    const SECTIONS: usize = 50;
    let server = RedisServer::start();
    // However slow the machine is: the bound in number is looked at.
    let patient = |settings: &mut Settings| settings.handoff_time = Duration::from_secs(60);
    let locks = manager(&server.url(FRESH), patient).await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let lock = locks.lock("hot");
            tokio::spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..SECTIONS {
                    let guard = lock.acquire().await.unwrap();
                    tokens.push(guard.token());
                    drop(guard.release().await);
                }
                tokens
            })
        })
        .collect();
    let mut grants = std::collections::HashSet::new();
    for task in tasks {
        grants.extend(task.await.unwrap());
    }
    assert!(grants.len() <= 16 * SECTIONS / 10, "{}", grants.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_cancelled_acquires_leak_nothing() {
    let server = RedisServer::start();
    let locks = manager(&server.url(FRESH), |_| {}).await;
    let mut cut = 0;
    // Dropped at every stage: before the first byte leaves, while the server works, with the answer
    // unread.
    for round in 0.. {
        if cut == 200 {
            break;
        }
        assert!(
            round < 10_000,
            "only {cut} of {round} were cancelled on their way"
        );
        let lock = locks.lock(format!("k{}", round % 7));
        let mut acquire = std::pin::pin!(lock.acquire());
        let mut is_over = false;
        for _ in 0..=round % 60 {
            is_over = futures_util::poll!(&mut acquire).is_ready();
            if is_over {
                break;
            }
            tokio::task::yield_now().await;
        }
        cut += u32::from(!is_over);
    }
    locks.settled().await;
    // A wait for other threads and a server: no clock of ours moves them.
    while !server.cli(&["KEYS", "k*"]).is_empty() {
        breathe().await;
    }
    assert!(locks.held().is_empty());
    for number in 0..7 {
        let guard = locks
            .lock(format!("k{number}"))
            .try_acquire()
            .await
            .unwrap();
        assert!(guard.is_some(), "k{number}");
    }
}

#[tokio::test]
async fn a_server_that_stops_for_a_moment_loses_no_lease_and_one_that_stays_stopped_loses_all() {
    let server = RedisServer::start();
    let locks = manager(&server.url(FRESH), |settings| {
        settings.ttl = Duration::from_secs(15);
        settings.request_timeout = Duration::from_millis(500);
    })
    .await;
    let guard = locks.lock("a").acquire().await.unwrap();
    server.pause();
    while !guard.lease().is_at_risk() {
        breathe().await;
    }
    server.resume();
    while guard.lease().is_at_risk() {
        breathe().await;
    }
    assert!(guard.lease().is_live());
    server.pause();
    assert_eq!(guard.lost().await, Ended::Lapsed);
    assert!(!guard.lease().is_live());
    server.resume();
}

#[tokio::test]
async fn a_key_that_an_operator_deleted_is_lost_and_the_next_holder_is_not_disturbed() {
    let server = RedisServer::start();
    let locks = manager(&server.url(FRESH), |settings| {
        settings.ttl = Duration::from_secs(9)
    })
    .await;
    let guard = locks.lock("a").acquire().await.unwrap();
    server.cli(&["DEL", "a"]);
    server.cli(&["SET", "a", "theirs", "PX", "60000"]);
    assert_eq!(guard.lost().await, Ended::Gone);
    drop(guard);
    locks.settled().await;
    locks.shutdown().await;
    assert_eq!(server.cli(&["GET", "a"]), "theirs");
}

#[tokio::test]
async fn a_waiter_gets_the_lock_although_wake_ups_never_come() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let ours = manager(&server.url(FRESH), |_| {}).await;
    let theirs = manager(&proxy.url(FRESH), |settings| {
        settings.max_poll_interval = Duration::from_millis(100)
    })
    .await;
    let guard = ours.lock("a").acquire().await.unwrap();
    let waiting =
        tokio::spawn(async move { theirs.lock("a").acquire().await.map(|guard| guard.token()) });
    // Its last connection is the subscriber's.
    while server
        .cli(&["PUBSUB", "CHANNELS", "*{leasehold}:wake:*"])
        .is_empty()
    {
        breathe().await;
    }
    let subscriber = proxy.wires().pop().unwrap();
    subscriber.set(Fate {
        swallow_down: true,
        ..Fate::KIND
    });
    let token = guard.token();
    drop(guard.release().await);
    assert!(waiting.await.unwrap().unwrap() > token);
}

#[tokio::test]
async fn a_run_under_a_fenced_lock_commits_through_the_fence() {
    let server = RedisServer::start();
    let locks = manager(&server.url(FRESH), |_| {}).await;
    let fence = RedisFence::connect(&server.url("")).await.unwrap();
    let lock = locks.lock("a").fence(fence.clone());
    let committing = fence.clone();
    let done = lock.guarded_async(async |tx| {
        let raised = server.cli(&["GET", "a{a}:raised"]);
        assert_eq!(
            raised,
            tx.token().to_string(),
            "raised before the work begins"
        );
        tx.commit_with(move |permit| {
            committing.apply(permit, RedisBatch::new().set("balance", "1"))
        });
        Ok(())
    });
    assert_eq!(done.await.unwrap().proof, CommitProof::Fenced);
    assert_eq!(server.cli(&["GET", "balance"]), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_held_for_a_minute_without_a_false_loss() {
    let server = RedisServer::start();
    let locks = manager(&server.url(FRESH), |_| {}).await;
    let mut guards = Vec::new();
    for number in 0..10_000 {
        guards.push(
            locks
                .lock(format!("held/{number:06}"))
                .acquire()
                .await
                .unwrap(),
        );
    }
    let clock = Clock::system().unwrap();
    // Real time, since the server counts by its own: six TTLs.
    clock.sleep(Duration::from_secs(60)).await;
    let lost = guards
        .iter()
        .filter(|guard| !guard.lease().is_live())
        .count();
    assert_eq!(lost, 0, "of 10,000 holds; {:?}", locks.health());
    assert_eq!(locks.health().held, 10_000);
    locks.shutdown().await;
    assert_eq!(server.cli(&["KEYS", "held/*"]), "");
}

/// Whether the lock `a` is free. A busy machine may hold an answer up for longer than a manager
/// waits by default.
async fn is_free(locks: &LockManager) -> bool {
    loop {
        match locks.lock("a").try_acquire().await {
            Ok(guard) => return guard.is_some(),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        breathe().await;
    }
}

#[tokio::test]
async fn a_url_is_all_that_a_manager_needs() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let ports: Vec<_> = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port()))
        .collect();
    let urls = [
        servers[0].url("restart_quarantine=off&prefix=single"),
        format!(
            "redlock://{}/0?restart_quarantine=off&prefix=many",
            ports.join(",")
        ),
    ];
    for url in urls {
        let locks = LockManager::connect(&url).await.unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        let other = LockManager::connect(&url).await.unwrap();
        assert!(!is_free(&other).await);
        drop(guard.release().await);
        assert!(is_free(&other).await);
    }
    assert_eq!(
        servers[0].cli(&[
            "EXISTS",
            "single:{leasehold}:token",
            "many:{leasehold}:token"
        ]),
        "2"
    );
    // The store's longest ttl is also the manager's, and what nobody set is no longer.
    let url = servers[0].url("prefix=short&max_ttl=2s");
    let short = LockManager::connect(&url).await.unwrap();
    assert_eq!(short.settings().ttl, Duration::from_secs(2));
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(3);
    let error = LockManager::builder_for_url(&url, settings)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("ttl=3s"), "{error}");
}

#[tokio::test]
async fn a_hold_in_doubt_stays_on_the_server_after_the_end_of_its_manager() {
    let server = RedisServer::start();
    for is_shut_down in [true, false] {
        let locks = manager(&server.url(FRESH), |_| {}).await;
        let guard = locks.lock("in-doubt").acquire().await.unwrap();
        end_in_doubt(guard).await;
        if is_shut_down {
            locks.shutdown().await;
        }
        drop(locks);
        // The manager's connections have ended when the server has no client of its kind left.
        while server
            .cli(&["CLIENT", "LIST"])
            .contains("lib-name=redis-rs")
        {
            breathe().await;
        }
        let left: i64 = server.cli(&["PTTL", "in-doubt"]).parse().unwrap();
        assert!(left > 0, "freed by the end of its manager");
        server.cli(&["DEL", "in-doubt"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_in_vain_for_several_keys_names_the_holder_and_not_the_waiter() {
    let server = RedisServer::start();
    let url = server.url(FRESH);
    let holder = LockManager::builder(RedisStore::connect(&url).await.unwrap());
    let holder = holder.label(leasehold::store::Label::parse("web-3:4502").unwrap());
    let holder = holder.build().unwrap();
    let _held = holder.lock("b").acquire().await.unwrap();
    let waiter = manager(&url, |settings| settings.wait = Duration::from_secs(5)).await;
    let error = waiter.lock_all(["a", "b", "c"]).acquire().await;
    let error = error.unwrap_err();
    assert_eq!(error.key().unwrap().as_str(), "b");
    let text = error.to_string();
    assert!(
        text.contains("key=b; held by web-3:4502 for about "),
        "{text}"
    );
    // With its own place in the queue it would be 1.
    assert!(text.contains(" left unless it is renewed; try"), "{text}");
    assert_eq!(server.cli(&["EXISTS", "a", "c"]), "0");
}
