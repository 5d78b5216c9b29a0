//! A grant by message that meets something else: a caller that goes away, a second copy of the
//! message, a client without a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, LockMode, Renewed, Store};
use leasehold::{LockGuard, LockManager, Settings};

use crate::claims::{claim, grant, is_busy, queued, release};
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const ROUNDS: usize = 50;
const REPEATS: usize = 5;

async fn manager(server: &RedisServer) -> LockManager {
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let mut settings = Settings::default();
    // Longer than a busy machine holds an answer up.
    settings.request_timeout = Duration::from_secs(10);
    let builder = LockManager::builder(store).settings(settings);
    builder.build().unwrap()
}

async fn acquire(locks: &LockManager) -> LockGuard {
    locks.lock("a").fair().acquire().await.unwrap()
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Polls a future each time it is woken, `times` times at most. Then it is dropped.
async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = Box::pin(future);
    for _ in 0..times {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        if let std::task::Poll::Ready(done) = future.poll_unpin(&mut context) {
            return Some(done);
        }
        while !woken.0.load(SeqCst) {
            breathe().await;
        }
    }
    None
}

/// Whoever is dropped, between two of its steps, while the lock is handed over to it, keeps nobody
/// waiting and leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_dropped_at_any_step_of_a_handover_passes_the_lock_on() {
    let server = RedisServer::start();
    let (holder, waiter, third) = (
        manager(&server).await,
        manager(&server).await,
        manager(&server).await,
    );
    let mut dropped = 0;
    let mut ended = 0;
    // A busy machine joins steps, so it begins again.
    for polls in (1..).flat_map(|polls| [polls; REPEATS]) {
        let held = acquire(&holder).await;
        let before = held.token();
        let locks = holder.clone();
        // It is released when the waiter has its place, or has been dropped before.
        let is_dropped = Arc::new(AtomicBool::new(false));
        let was_dropped = Arc::clone(&is_dropped);
        let releases = tokio::spawn(async move {
            while !was_dropped.load(SeqCst) {
                let info = locks.inspect("a").await.unwrap();
                if info.and_then(|info| info.queue) == Some(1) {
                    break;
                }
            }
            drop(held.release().await);
        });
        let woken = polled(acquire(&waiter), polls).await;
        is_dropped.store(true, SeqCst);
        releases.await.unwrap();
        let is_done = woken.is_some();
        if let Some(guard) = woken {
            assert!(guard.token() > before);
            drop(guard.release().await);
        } else {
            dropped += 1;
        }
        let next = acquire(&third).await;
        assert!(next.token() > before);
        drop(next.release().await);
        ended = if is_done { ended + 1 } else { 0 };
        if ended == REPEATS {
            break;
        }
    }
    assert!(dropped >= REPEATS, "it was hardly ever dropped");
    // What a manager withdraws in the background, it withdraws soon.
    while !server.cli(&["KEYS", "app:a*"]).is_empty() {
        breathe().await;
    }
}

#[tokio::test]
async fn a_message_that_grants_and_arrives_twice_grants_once() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let mut was_held = false;
    for _ in 0..ROUNDS {
        let held = grant(&store, &claim("a")).await;
        let next = queued("a", LockMode::Exclusive);
        let hint = store.subscribe(&next).await.unwrap();
        assert!(is_busy(&store, &next).await);
        release(&store, &held).await;
        let Some(given) = hint.await else { continue };
        // What the server has sent, again.
        let value = server.cli(&["GET", "app:a"]);
        let Some(millis) = value.split(' ').nth(3) else {
            let _ = store.withdraw(&next).await;
            continue;
        };
        let mark = server.cli(&["GET", "app:{leasehold}:marker"]);
        let (owner, token) = (next.owner.expose().to_string(), given.token.number());
        release(&store, &given).await;
        let other = grant(&store, &claim("a")).await;
        let hint = store.subscribe(&next).await.unwrap();
        let channel = format!("app:{{leasehold}}:wake:{}", &owner[24..]);
        let message = format!("{owner} {token} {millis}999 {mark}");
        assert_eq!(server.cli(&["PUBLISH", &channel, &message]), "1");
        assert_eq!(hint.await, None, "two hold");
        let renewed = store.renew(std::slice::from_ref(&other)).await;
        was_held = matches!(renewed.as_slice(), [Renewed::Extended(_)]);
        release(&store, &other).await;
        if was_held {
            break;
        }
    }
    assert!(was_held, "no grant by message lasted to be seen");
}

/// A client that knows nothing of the queue asks without a pause while the lock is granted by
/// messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_place_never_holds_beside_a_grant_by_message() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(FRESH)).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let client = ::redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let foreign = std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        let mut entered = 0;
        while !over.load(SeqCst) {
            let mut set = ::redis::cmd("SET");
            set.arg("app:a")
                .arg("theirs")
                .arg("NX")
                .arg("PX")
                .arg(60_000);
            let answer: Option<String> = set.query(&mut connection).unwrap();
            if answer.is_some() {
                entered += 1;
                // Nobody else may write the key until it is deleted here.
                for _ in 0..20 {
                    let value: String = ::redis::cmd("GET")
                        .arg("app:a")
                        .query(&mut connection)
                        .unwrap();
                    assert_eq!(value, "theirs");
                }
                let () = ::redis::cmd("DEL")
                    .arg("app:a")
                    .query(&mut connection)
                    .unwrap();
            }
        }
        entered
    });
    let mut by_message = 0;
    for _ in 0..ROUNDS {
        let first = loop {
            let first = claim("a");
            if let Ok(Acquired::Granted(held)) = store.acquire(&first).await {
                break held;
            }
            let _ = store.withdraw(&first).await;
        };
        let next = queued("a", LockMode::Exclusive);
        let hint = store.subscribe(&next).await.unwrap();
        if !is_busy(&store, &next).await {
            // The first one's time is over, on a machine that stood still.
            let _ = store.withdraw(&next).await;
            continue;
        }
        drop(store.release(&first).await);
        if let Some(given) = hint.await {
            let renewed = store.renew(std::slice::from_ref(&given)).await;
            if matches!(renewed.as_slice(), [Renewed::Extended(_)]) {
                by_message += 1;
                let value = server.cli(&["GET", "app:a"]);
                assert!(value.starts_with(&given.claim.owner.expose().to_string()));
            }
            drop(store.release(&given).await);
        }
        let _ = store.withdraw(&next).await;
    }
    is_over.store(true, SeqCst);
    let entered = foreign.join().unwrap();
    assert!(by_message > 0 && entered > 0, "{by_message} {entered}");
}

/// What the guide gives to the user of a prefix.
const OF_A_TENANT: [&str; 4] = ["+@all", "-@admin", "-@dangerous", "+info"];

/// Another application has the same server, and a user of its own.
#[tokio::test]
async fn another_tenant_of_the_server_neither_hears_nor_sends_the_messages_by_which_locks_are_granted()
 {
    let server = RedisServer::start();
    let password = format!(">{CANARY}");
    for name in ["app", "evil"] {
        let (keys, channels) = (format!("~{name}:*"), format!("&{name}:*"));
        let user = ["ACL", "SETUSER", name, "on", &password, "resetchannels"];
        let rules = [&user[..], &[&keys, &channels], &OF_A_TENANT].concat();
        assert_eq!(server.cli(&rules), "OK");
    }
    let url = (server.url(FRESH)).replace("redis://", &format!("redis://app:{CANARY}@"));
    let store = RedisStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let waits = queued("a", LockMode::Exclusive);
    let hint = store.subscribe(&waits).await.unwrap();
    assert!(is_busy(&store, &waits).await);
    let channels = server.cli(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels.lines().count(), 1, "{channels}");
    for command in [
        &["PUBLISH", &channels, "x"][..],
        &["SUBSCRIBE", &channels],
        &["PSUBSCRIBE", "*"],
    ] {
        let by_evil = ["--user", "evil", "--pass", CANARY, "--no-auth-warning"];
        let refused = server.cli(&[&by_evil[..], command].concat());
        assert!(refused.contains("NOPERM"), "{command:?}: {refused}");
    }
    release(&store, &held).await;
    let clock = Clock::system().unwrap();
    let heard = clock.timeout(Duration::from_secs(60), hint).await;
    assert!(heard.flatten().is_some(), "its own user sends them");
}
