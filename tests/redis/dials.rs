//! How often clients connect to a server that is of no use to them: a connection that served nobody
//! does not hurry the next one.
//!
//! These tests count what happens within real seconds, since the pauses between connections count
//! by real clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::claims::{claim, grant};
use crate::meddler::{Habit, Meddler};
use crate::server::{RedisServer, breathe};
use leasehold::clock::Clock;
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::{LockManager, Settings};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const WHILE_COUNTED: Duration = Duration::from_secs(3);
/// Of one manager in that time: some connections, each with a pause that doubles.
const FEW: usize = 30;

/// A manager that connects with its first request.
fn manager(meddler: &Meddler) -> LockManager {
    let options = RedisOptions::parse(&meddler.url(FRESH)).unwrap();
    LockManager::new(RedisStore::member(options).unwrap()).unwrap()
}

/// Twenty callers ask again and again until the time is over, each for the lock that `name` gives
/// it. Returns how many times one held.
async fn holds_of_a_crowd(locks: &LockManager, name: impl Fn(u32) -> String) -> usize {
    let clock = Clock::system().unwrap();
    let end = clock.stamp().plus(WHILE_COUNTED);
    let holds = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..20)
        .map(|number| {
            let (locks, clock, holds) = (locks.clone(), clock.clone(), Arc::clone(&holds));
            let name = name(number);
            tokio::spawn(async move {
                while !end.since(&clock.stamp()).is_zero() {
                    let left = end.since(&clock.stamp());
                    if let Ok(Some(guard)) = locks.lock(name.as_str()).acquire_within(left).await {
                        holds.fetch_add(1, Ordering::Relaxed);
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
    holds.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_proxy_that_answers_info_by_itself_is_no_obstacle() {
    let server = RedisServer::start();
    // Of another server.
    let info = "redis_version:6.2.0\r\nrun_id:abababababababababababababababababababab\r\n\
        uptime_in_seconds:100000\r\nrole:master\r\n";
    for habit in [Habit::RefusesInfo, Habit::AnswersInfo(info)] {
        let meddler = Meddler::before(server.port(), habit);
        let mut settings = Settings::default();
        settings.wait = Duration::from_secs(20);
        let locks = LockManager::builder_for_url(&meddler.url(FRESH), settings).await;
        let locks = locks.unwrap().build().unwrap();
        let held = locks.lock("a").acquire().await.unwrap();
        drop(held.release().await);
        let dials = meddler.dials();
        assert!(dials <= 5, "{dials} connections");
    }
}

/// It chooses the server by a script's first key. The server would be read as one that hides its
/// run, and then as another one by every script that has a key.
#[tokio::test]
async fn a_proxy_that_passes_on_no_script_without_a_key_is_no_obstacle() {
    let server = RedisServer::start();
    let meddler = Meddler::before(server.port(), Habit::NeedsKeys);
    let locks = manager(&meddler);
    let held = locks
        .lock("a")
        .acquire_within(Duration::from_secs(20))
        .await;
    drop(held.unwrap().unwrap().release().await);
}

#[tokio::test]
async fn a_connection_over_which_a_request_was_refused_does_not_hurry_the_next_one() {
    let server = RedisServer::start();
    let meddler = Meddler::before(server.port(), Habit::RefusesScripts);
    let locks = manager(&meddler);
    let holds = holds_of_a_crowd(&locks, |number| format!("k{number}")).await;
    let dials = meddler.dials();
    println!("{dials} connections");
    assert!(holds == 0 && dials <= FEW, "{dials} connections");
}

#[tokio::test]
async fn a_subscription_that_ends_at_once_does_not_hurry_the_next_one() {
    let server = RedisServer::start();
    let holder = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let _held = grant(&holder, &claim("a")).await;
    let meddler = Meddler::before(server.port(), Habit::EndsSubscribers);
    let locks = manager(&meddler);
    let holds = holds_of_a_crowd(&locks, |_| "a".to_owned()).await;
    let dials = meddler.dials();
    println!("{dials} connections");
    assert!(holds == 0 && dials <= FEW, "{dials} connections");
}
