//! Servers that forget: nothing is granted until the last lease that may have been forgotten has
//! ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::claims::{claim_for, grant, is_busy, once};
use crate::other_holder::{OtherHolder, age, wait_for};
use crate::server::{RedisServer, breathe, free_port};
use leasehold::redis::RedisStore;
use leasehold::store::{Renewed, Store};
use leasehold::{ErrorKind, LockManager, Settings};

/// Short, since it is waited for, and longer than a busy machine stands still.
const LONG: Duration = Duration::from_millis(5_900);
const SHORT: Duration = Duration::from_millis(200);

const QUERY: &str = "prefix=app&max_ttl=6s";

const EVERY_WRITE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(QUERY)).await.unwrap()
}

/// A holder, then `forget`, then another process that asks with a short TTL: it is not granted
/// while the holder is live.
async fn nobody_is_let_in_too_early(
    server: &mut RedisServer,
    forget: impl Fn(&mut RedisServer),
    again: bool,
) {
    let holder = OtherHolder::holding(&store(server).await, "a", LONG).await;
    let seen_before = store(server).await;
    assert!(is_busy(&seen_before, &once(claim_for("a", SHORT))).await);
    forget(server);
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0", "the server forgot");
    let asking = if again {
        seen_before
    } else {
        store(server).await
    };
    let next = wait_for(&asking, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_killed_server_without_persistence_grants_nothing_before_that_lease_ended() {
    let mut server = RedisServer::start();
    nobody_is_let_in_too_early(&mut server, RedisServer::restart, false).await;
}

#[tokio::test]
async fn a_client_that_was_connected_before_the_restart_waits_too() {
    let mut server = RedisServer::start();
    nobody_is_let_in_too_early(&mut server, RedisServer::restart, true).await;
}

#[tokio::test]
async fn a_flushed_server_grants_nothing_before_that_lease_ended() {
    let mut server = RedisServer::start();
    let flush = |server: &mut RedisServer| assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    nobody_is_let_in_too_early(&mut server, flush, true).await;
}

#[tokio::test]
async fn a_client_that_never_saw_the_server_before_the_flush_waits_too() {
    let mut server = RedisServer::start();
    let flush = |server: &mut RedisServer| assert_eq!(server.cli(&["FLUSHDB"]), "OK");
    nobody_is_let_in_too_early(&mut server, flush, false).await;
}

/// The flush of a server that was there before anybody asked it, which no age shows. Who asks next
/// connected before the flush, or after it.
async fn nobody_is_let_in_too_early_after(flush: &[&str], was_connected: bool) {
    let server = RedisServer::start();
    let store = async || RedisStore::connect(&server.url("prefix=app&max_ttl=1s")).await;
    // Real time, since the server counts its age in whole seconds: older than max_ttl, so that it
    // is trusted.
    while age(&server) < 3 {
        breathe().await;
    }
    let mut asking = store().await.unwrap();
    let first = store().await.unwrap();
    let holder = OtherHolder::holding(&first, "a", Duration::from_secs(1)).await;
    assert_eq!(server.cli(flush), "OK");
    if !was_connected {
        asking = store().await.unwrap();
    }
    let next = wait_for(&asking, &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_client_that_was_connected_before_the_flush_and_asks_for_the_first_time_after_it_waits_too()
 {
    nobody_is_let_in_too_early_after(&["FLUSHALL"], true).await;
}

#[tokio::test]
async fn to_put_another_database_in_its_place_is_to_flush() {
    nobody_is_let_in_too_early_after(&["SWAPDB", "0", "1"], false).await;
}

#[tokio::test]
async fn a_client_that_was_connected_before_databases_were_swapped_waits_too() {
    nobody_is_let_in_too_early_after(&["SWAPDB", "0", "1"], true).await;
}

#[tokio::test]
async fn a_database_that_takes_the_place_of_another_with_the_marker_of_the_same_prefix_waits_too() {
    let server = RedisServer::start();
    let in_second = server.url("prefix=app&max_ttl=1s").replace("/0?", "/1?");
    while age(&server) < 3 {
        breathe().await;
    }
    let second = RedisStore::connect(&in_second).await.unwrap();
    let _other = grant(&second, &claim_for("b", SHORT)).await;
    let store = async || RedisStore::connect(&server.url("prefix=app&max_ttl=1s")).await;
    let first = store().await.unwrap();
    let holder = OtherHolder::holding(&first, "a", Duration::from_secs(1)).await;
    assert_eq!(server.cli(&["SWAPDB", "0", "1"]), "OK");
    let next = wait_for(&store().await.unwrap(), &claim_for("a", SHORT)).await;
    holder.has_given_way_to(&next);
}

#[tokio::test]
async fn a_master_that_was_deposed_and_came_back_grants_nothing_before_that_lease_ended() {
    let mut server = RedisServer::start();
    let depose = |server: &mut RedisServer| {
        let nobody = free_port().to_string();
        assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &nobody]), "OK");
        assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        // Another master granted it meanwhile, and it was never copied.
        assert_eq!(server.cli(&["DEL", "app:a"]), "1");
    };
    nobody_is_let_in_too_early(&mut server, depose, false).await;
}

#[tokio::test]
async fn a_restart_from_an_old_snapshot_is_a_restart() {
    let mut server = RedisServer::start();
    let setting_up = store(&server).await;
    let _other = wait_for(&setting_up, &claim_for("before", SHORT)).await;
    // The marker is in the snapshot, the lock is not.
    assert_eq!(server.cli(&["SAVE"]), "OK");
    nobody_is_let_in_too_early(&mut server, RedisServer::restart, false).await;
    let kept = server.cli(&["EXISTS", "app:{leasehold}:token"]);
    assert_eq!(kept, "1", "it was a restart with a snapshot");
}

#[tokio::test]
async fn switched_off_it_lets_two_in() {
    // The tests above can fail: the same without the quarantine.
    let mut server = RedisServer::start();
    let off = "prefix=app&max_ttl=1m&restart_quarantine=off";
    let first = RedisStore::connect(&server.url(off)).await.unwrap();
    let holder = OtherHolder::holding(&first, "a", Duration::from_secs(60)).await;
    server.restart();
    let second = RedisStore::connect(&server.url(off)).await.unwrap();
    let _next = grant(&second, &claim_for("a", SHORT)).await;
    assert!(holder.is_live());
}

#[tokio::test]
async fn a_server_that_persists_every_write_keeps_its_holds_and_grants_nothing_new_before_max_ttl()
{
    let mut server = RedisServer::start_with(&EVERY_WRITE);
    let first = store(&server).await;
    let held = wait_for(&first, &claim_for("a", LONG)).await;
    server.restart();
    // The holder's connection is dead, and the next try makes a new one.
    let renewed = loop {
        match store(&server)
            .await
            .renew(std::slice::from_ref(&held))
            .await
            .pop()
        {
            Some(Renewed::Unknown(_)) => breathe().await,
            renewed => break renewed,
        }
    };
    assert!(matches!(renewed, Some(Renewed::Extended(_))), "{renewed:?}");
    // Its log may be that of another server, which granted until a moment ago.
    assert!(is_busy(&store(&server).await, &once(claim_for("b", SHORT))).await);
    let _other = wait_for(&first, &claim_for("b", SHORT)).await;
}

#[tokio::test]
async fn a_server_that_persists_every_write_and_lost_its_disk_grants_nothing_before_that_lease_ended()
 {
    let mut server = RedisServer::start_with(&EVERY_WRITE);
    let lose_the_disk = |server: &mut RedisServer| {
        server.kill();
        // In a folder of its own since version 7.
        let [folder, file] =
            ["appendonlydir", "appendonly.aof"].map(|log| server.folder().join(log));
        let is_lost = std::fs::remove_dir_all(folder).is_ok() || std::fs::remove_file(file).is_ok();
        assert!(is_lost);
        server.restart();
    };
    nobody_is_let_in_too_early(&mut server, lose_the_disk, false).await;
}

#[tokio::test]
async fn a_server_that_persists_every_write_only_since_its_restart_may_have_forgotten_before_it() {
    let every_second = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let mut server = RedisServer::start_with(&every_second);
    let lose_the_last_second = |server: &mut RedisServer| {
        // A busy disk would keep the deletion from the log until after the kill.
        server.cli(&["CONFIG", "SET", "appendfsync", "always"]);
        assert_eq!(server.cli(&["DEL", "app:a"]), "1");
        server.restart_with(&EVERY_WRITE);
        assert_eq!(server.cli(&["EXISTS", "app:{leasehold}:marker"]), "1");
    };
    nobody_is_let_in_too_early(&mut server, lose_the_last_second, false).await;
}

#[tokio::test]
async fn a_server_that_grants_nothing_yet_is_distinguished_from_a_holder() {
    let server = RedisServer::start();
    let mut settings = Settings::default();
    // Long enough for an answer on a busy machine: it waits so long in vain.
    settings.wait = Duration::from_secs(2);
    settings.request_timeout = LONG;
    let builder = LockManager::builder_for_url(&server.url("prefix=app"), settings).await;
    let locks = builder.unwrap().build().unwrap();
    assert!(locks.inspect("a").await.unwrap().is_none(), "nobody");
    let refused = [
        locks.lock("a").try_acquire().await.err(),
        locks.lock("a").acquire().await.err(),
        locks.semaphore("a", 2).acquire().await.err(),
        locks.lock_all(["a", "b"]).acquire().await.err(),
    ];
    for error in refused.map(Option::unwrap) {
        assert_eq!(error.kind(), ErrorKind::NotReady, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("the store grants nothing for another"),
            "{text}"
        );
        assert!(error.retry_after().unwrap() > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_quarantine_is_logged_once_with_how_long_why_and_how_to_switch_it_off() {
    let server = RedisServer::start();
    let reported = Reported::default();
    let guard = reported.listen();
    let off = format!("{QUERY}&restart_quarantine=off");
    let _trusting = RedisStore::connect(&server.url(&off)).await.unwrap();
    assert_eq!(reported.with(""), Vec::<String>::new());
    let store = store(&server).await;
    for _ in 0..5 {
        assert!(is_busy(&store, &once(claim_for("a", SHORT))).await);
    }
    drop(guard);
    let reported = reported.with("");
    assert_eq!(reported.len(), 1, "{reported:?}");
    for part in [
        "grants nothing for another",
        "may have forgotten locks",
        "max_ttl=6s",
        "restart_quarantine=off",
    ] {
        assert!(reported[0].contains(part), "{part}: {reported:?}");
    }
    assert!(!reported[0].contains('\n'));
}

/// Collects the lines of the log.
#[derive(Clone, Default)]
pub(crate) struct Reported(Arc<Mutex<Vec<String>>>);

impl Reported {
    /// On this thread, until the guard is dropped.
    pub(crate) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(self.clone())
    }

    /// The lines that hold this.
    pub(crate) fn with(&self, part: &str) -> Vec<String> {
        let reported = self.0.lock().unwrap();
        let lines = reported.iter().filter(|line| line.contains(part));
        lines.cloned().collect()
    }
}

impl tracing::Subscriber for Reported {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold") && *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message<'a>(&'a mut String);
        impl tracing::field::Visit for Message<'_> {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    *self.0 = format!("{value:?}");
                }
            }
        }
        let mut line = String::new();
        event.record(&mut Message(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
