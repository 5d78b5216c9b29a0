//! What crowds cost in requests, keys, dials and tasks: counts, which need no floor beside them.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::{LockManager, Settings};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::blocks::Goal;
use crate::contended::quorum_over;
use crate::fleet::{keys, requests, subscriptions};
use crate::runtime;
use crate::server::RedisServer;
use crate::server::canary::CANARY;

/// No count waits for longer.
const LIMIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(3);
/// The managers of a herd, beside the one that holds first.
const HERD: u32 = 200;

fn report(what: &str, value: f64, goal: Goal) {
    println!("{what:<60} {value:.2}{}", goal.verdict(value));
}

async fn connect(server: &RedisServer) -> LockManager {
    let url = server.url("");
    LockManager::connect(&url).await.expect("a manager")
}

/// Each takes the lock once and releases it. False if they do not end in time.
async fn all_ended(mut tasks: JoinSet<()>) -> bool {
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a task that ends");
        }
    };
    timeout(LIMIT, all).await.is_ok()
}

/// One section each by fair waiters of one process.
pub(crate) fn round(servers: &[RedisServer]) {
    let server = &servers[0];
    let runtime = runtime();
    for waiters in [50_u32, 100, 1_000] {
        runtime.block_on(async {
            let locks = connect(server).await;
            let lock = locks.lock(format!("round/{waiters}")).fair();
            let held = lock.acquire().await.expect("it is free");
            let before = requests(server);
            let mut tasks = JoinSet::new();
            for _ in 0..waiters {
                let lock = lock.clone();
                tasks.spawn(async move {
                    let guard = lock.acquire_within(LIMIT).await;
                    let guard = guard.expect("no fault").expect("its turn");
                    drop(guard.release().await);
                });
            }
            // All have a place.
            sleep(Duration::from_millis(300) + Duration::from_millis(1) * waiters).await;
            drop(held.release().await);
            let ended = all_ended(tasks).await;
            let each = (requests(server) - before) as f64 / f64::from(waiters);
            let end = if ended { "" } else { " (not ended in time)" };
            let what = format!("requests a waiter, one round of {waiters} fair waiters{end}");
            report(&what, each, Goal::AtMost(4.0));
        });
    }
}

/// One section each by 200 managers, each as a process of its own would be: of managers that have
/// sent nothing to a server that knows none of our scripts, of the same managers once more, and of
/// others that have sent nothing to this server.
pub(crate) fn herd(servers: &[RedisServer]) {
    let server = &servers[0];
    runtime().block_on(async {
        let first = managers(server).await;
        herd_of(server, &first, "new to a new server").await;
        herd_of(server, &first, "that used the server before").await;
        let others = managers(server).await;
        herd_of(server, &others, "new to a server that others used").await;
    });
}

/// For a holder and a herd.
async fn managers(server: &RedisServer) -> Vec<LockManager> {
    let mut managers = Vec::new();
    for _ in 0..=HERD {
        managers.push(connect(server).await);
    }
    managers
}

/// The first holds until the others wait.
async fn herd_of(server: &RedisServer, managers: &[LockManager], who: &str) {
    let (holder, herd) = managers.split_first().expect("a holder");
    let key = who.replace(' ', "-");
    let held = holder.lock(&key).acquire().await.expect("it is free");
    let before = requests(server);
    let subscribed = subscriptions(server);
    let mut tasks = JoinSet::new();
    for locks in herd {
        let lock = locks.lock(&key);
        tasks.spawn(async move {
            let guard = lock.acquire_within(LIMIT).await;
            let guard = guard.expect("no fault").expect("its turn");
            drop(guard.release().await);
        });
    }
    // Less than a second, after which a waiting process keeps its place by asking again.
    sleep(Duration::from_millis(500)).await;
    let to_enter = requests(server) - before;
    drop(held.release().await);
    let ended = all_ended(tasks).await;
    // Without the holder's release.
    let all = requests(server) - before - 1;
    let of_each = |count| count as f64 / f64::from(HERD);
    println!(
        "    before the first release {:.2}, after it {:.2}; subscriptions among all {:.2}",
        of_each(to_enter),
        of_each(all - to_enter),
        of_each(subscriptions(server) - subscribed)
    );
    let end = if ended { "" } else { " (not ended in time)" };
    let what = format!("requests a section, {HERD} managers {who}{end}");
    report(&what, of_each(all), Goal::AtMost(4.0));
}

/// The keys that 100,000 locks leave.
pub(crate) fn left(servers: &[RedisServer]) {
    const LOCKS: usize = 100_000;
    const TASKS: usize = 16;
    let server = &servers[0];
    runtime().block_on(async {
        let locks = connect(server).await;
        let before = keys(server);
        let mut tasks = JoinSet::new();
        let done = Arc::new(AtomicUsize::new(0));
        for task in 0..TASKS {
            let (locks, done) = (locks.clone(), Arc::clone(&done));
            tasks.spawn(async move {
                for number in (task..LOCKS).step_by(TASKS) {
                    let lock = locks.lock(format!("order/{number}"));
                    drop(lock.acquire().await.expect("it is free").release().await);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _ = all_ended(tasks).await;
        let left = keys(server) - before;
        let done = done.load(Ordering::Relaxed);
        let what = format!("keys left after {done} different locks");
        report(&what, left as f64, Goal::AtMost(3.0));
    });
}

/// The dials of 200 callers at a server that closes every connection at once.
pub(crate) fn dials(_: &[RedisServer]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    // Ends with the process.
    std::thread::spawn(move || {
        for _closed_at_once in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    runtime().block_on(async {
        let options = RedisOptions::parse(&format!("redis://127.0.0.1:{port}"));
        let store = RedisStore::member(options.expect("a URL")).expect("a store");
        let locks = LockManager::new(store).expect("a manager");
        let mut tasks = JoinSet::new();
        for number in 0..200 {
            let lock = locks.lock(format!("k{number}"));
            tasks.spawn(async move {
                let began = Instant::now();
                while began.elapsed() < SHORT {
                    let left = SHORT.saturating_sub(began.elapsed());
                    drop(lock.acquire_within(left).await);
                    sleep(Duration::from_millis(5)).await;
                }
            });
        }
        let _ = all_ended(tasks).await;
    });
    let dials = dials.load(Ordering::Relaxed);
    report(
        "dials in 3 s, 200 callers, every connection closed at once",
        dials as f64,
        Goal::AtMost(20.0),
    );
}

/// The requests of 50 fair waiters with a subscription, and of 50 that may not subscribe.
pub(crate) fn unsubscribed(servers: &[RedisServer]) {
    let server = &servers[0];
    let password = format!(">{CANARY}");
    let rules = ["~*", "resetchannels", "+@all"];
    server.cli(&[&["ACL", "SETUSER", "mute", "on", &password][..], &rules].concat());
    let allowed = server.url("");
    let refused = allowed.replace("127.0.0.1", &format!("mute:{CANARY}@127.0.0.1"));
    let runtime = runtime();
    let waiting = |url: &str| {
        runtime.block_on(async {
            let mut settings = Settings::default();
            settings.wait = Duration::from_secs(2);
            let locks = LockManager::builder_for_url(url, settings).await;
            let locks = locks.expect("a URL").build().expect("a manager");
            let held = locks.lock("mute").acquire().await.expect("it is free");
            let before = requests(server);
            let mut tasks = JoinSet::new();
            for _ in 0..50 {
                let lock = locks.lock("mute").fair();
                tasks.spawn(async move {
                    assert!(lock.acquire().await.is_err(), "it waits in vain");
                });
            }
            let _ = all_ended(tasks).await;
            let asked = requests(server) - before;
            drop(held.release().await);
            asked as f64
        })
    };
    let (with, without) = (waiting(&allowed), waiting(&refused));
    println!("requests in 2 s of 50 fair waiters: {with}; not allowed to subscribe: {without}");
    report(
        "requests without a subscription / with",
        without / with,
        Goal::AtMost(3.0),
    );
}

/// The tasks that one sequential caller leaves on a quorum with a dead member.
pub(crate) fn tasks(mut servers: Vec<RedisServer>) {
    let runtime = runtime();
    runtime.block_on(async {
        let locks = LockManager::new(quorum_over(&servers)).expect("a manager");
        drop(
            locks
                .lock("tasks")
                .acquire()
                .await
                .expect("a majority")
                .release()
                .await,
        );
        servers[0].kill();
        let began = Instant::now();
        let mut holds = 0;
        while began.elapsed() < SHORT {
            let guard = locks.lock("tasks").acquire().await.expect("a majority");
            drop(guard.release().await);
            holds += 1;
        }
        let alive = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let what = format!("tasks alive after {holds} holds with a dead member of 3");
        report(&what, alive as f64, Goal::AtMost(30.0));
    });
}
