//! Readers and writers in a Redis server: beside other clients, in one batch of renewals, over
//! deaths and downgrades.
//!
//! Where a hold has to be over, its end is moved in the server: no test waits for one.

use std::time::Duration;

use crate::bare_thread::block_on;
use crate::claims::{claim, grant, is_busy, key, once, queued, release};
use crate::server::RedisServer;
use futures_util::FutureExt;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Grant, LockMode, Released, Renewed, Store};
use leasehold::{ErrorKind, LockManager};

const FRESH: &str = "prefix=app&restart_quarantine=off";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

async fn hold_for(store: &RedisStore, mode: LockMode, ttl: Duration) -> Grant {
    let mut claim = queued("a", mode);
    claim.ttl = ttl;
    grant(store, &claim).await
}

async fn hold(store: &RedisStore, mode: LockMode) -> Grant {
    grant(store, &queued("a", mode)).await
}

fn left(server: &RedisServer) -> i64 {
    server.cli(&["PTTL", "app:a"]).parse().unwrap()
}

/// A plain client asks, as any in another language would.
fn is_kept_out(server: &RedisServer) -> bool {
    let answer = server.cli(&["SET", "app:a", "theirs", "NX", "PX", "60000"]);
    assert!(["", "OK"].contains(&answer.as_str()), "{answer}");
    answer.is_empty()
}

/// As if its client had died, and its ttl were over.
fn end_reader(server: &RedisServer, reader: &Grant) {
    let owner = reader.claim.owner.expose();
    let changed = server.cli(&["ZADD", "app:a{app:a}:readers", "XX", "CH", "1", &owner]);
    assert_eq!(changed, "1");
}

#[tokio::test]
async fn a_plain_client_is_kept_out_until_the_last_reader_left() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let first = hold(&store, LockMode::Read).await;
    let second = hold(&store, LockMode::Read).await;
    assert!(is_kept_out(&server));
    release(&store, &first).await;
    assert!(is_kept_out(&server));
    release(&store, &second).await;
    assert!(!is_kept_out(&server));
}

#[tokio::test]
async fn a_plain_client_is_kept_out_by_a_writer() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let writer = hold(&store, LockMode::Write).await;
    let value = server.cli(&["GET", "app:a"]);
    assert!(value.starts_with(&writer.claim.owner.expose()), "{value}");
    assert!(is_kept_out(&server));
    release(&store, &writer).await;
    assert!(!is_kept_out(&server));
}

#[tokio::test]
async fn the_key_lasts_as_long_as_the_reader_that_lasts_longest() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let short = hold_for(&store, LockMode::Read, Duration::from_secs(5)).await;
    let long = hold_for(&store, LockMode::Read, Duration::from_secs(20)).await;
    let middle = hold_for(&store, LockMode::Read, Duration::from_secs(10)).await;
    assert!((15_000..=20_000).contains(&left(&server)));
    let renewed = store.renew(std::slice::from_ref(&short)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]));
    assert!((15_000..=20_000).contains(&left(&server)));
    release(&store, &long).await;
    assert!((5_001..=10_000).contains(&left(&server)));
    release(&store, &middle).await;
    assert!((1..=5_000).contains(&left(&server)));
    // What stands beside it lasts no longer than it does.
    for what in ["readers", "grants"] {
        let beside: i64 = server
            .cli(&["PTTL", &format!("app:a{{app:a}}:{what}")])
            .parse()
            .unwrap();
        assert!((1..=5_000).contains(&beside), "{what}: {beside}");
    }
}

#[tokio::test]
async fn readers_and_writers_wait_for_another_client_and_leave_its_value_alone() {
    let server = RedisServer::start();
    let store = store(&server).await;
    assert!(!is_kept_out(&server));
    for mode in [LockMode::Read, LockMode::Write] {
        let claim = queued("a", mode);
        assert!(is_busy(&store, &claim).await);
        store.withdraw(&claim).await.unwrap();
    }
    assert_eq!(server.cli(&["GET", "app:a"]), "theirs");
    assert!(left(&server) > 50_000);
    server.cli(&["DEL", "app:a"]);
    let _reader = hold(&store, LockMode::Read).await;
}

#[tokio::test]
async fn a_reader_that_died_frees_only_itself() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let [dead, live] = [
        hold(&store, LockMode::Read).await,
        hold(&store, LockMode::Read).await,
    ];
    let writer = queued("a", LockMode::Write);
    assert!(is_busy(&store, &writer).await);
    end_reader(&server, &dead);
    let renewed = store.renew(&[dead.clone(), live.clone()]).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Extended(_)]),
        "{renewed:?}"
    );
    assert!(is_busy(&store, &writer).await);
    assert!(matches!(store.release(&dead).await, Released::AlreadyGone));
    assert!(is_busy(&store, &writer).await);
    release(&store, &live).await;
    let _held = grant(&store, &writer).await;
}

#[tokio::test]
async fn the_last_reader_that_leaves_frees_the_key_from_those_that_died() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let [dead, live] = [
        hold(&store, LockMode::Read).await,
        hold(&store, LockMode::Read).await,
    ];
    end_reader(&server, &dead);
    release(&store, &live).await;
    assert_eq!(server.cli(&["KEYS", "app:a*"]), "");
}

#[tokio::test]
async fn holds_of_every_mode_are_renewed_by_one_call() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut holds = vec![grant(&store, &claim("b")).await];
    for (name, mode) in [
        ("c", LockMode::Write),
        ("a", LockMode::Read),
        ("a", LockMode::Read),
    ] {
        holds.push(grant(&store, &queued(name, mode)).await);
    }
    for name in ["app:a", "app:b", "app:c"] {
        server.cli(&["PEXPIRE", name, "900"]);
    }
    server.cli(&["SCRIPT", "FLUSH"]);
    let _loads_the_script = store.renew(&holds[..1]).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    let renewed = store.renew(&holds).await;
    assert!(
        renewed
            .iter()
            .all(|one| matches!(one, Renewed::Extended(_))),
        "{renewed:?}"
    );
    let stats = server.cli(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_evalsha:calls=1,"), "{stats}");
    for name in ["app:a", "app:b", "app:c"] {
        let left: u64 = server.cli(&["PTTL", name]).parse().unwrap();
        assert!(left > 900, "{name}: {left}");
    }
}

#[tokio::test]
async fn readers_whose_key_was_lost_do_not_come_back_with_the_next() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let lost = hold(&store, LockMode::Read).await;
    server.cli(&["DEL", "app:a"]);
    let gone = store.renew(std::slice::from_ref(&lost)).await;
    assert!(matches!(gone[..], [Renewed::Gone]), "{gone:?}");
    let next = hold(&store, LockMode::Read).await;
    let renewed = store.renew(&[lost.clone(), next]).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Extended(_)]),
        "{renewed:?}"
    );
    assert!(matches!(store.release(&lost).await, Released::AlreadyGone));
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(record.holders, 1);
}

#[tokio::test]
async fn a_reader_that_holds_is_granted_again_with_its_own_token() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let first = hold(&store, LockMode::Read).await;
    let second = hold(&store, LockMode::Read).await;
    assert!(second.token > first.token);
    let again = grant(&store, &first.claim).await;
    assert_eq!(again.token, first.token);
    assert!(again.proof.ttl <= first.proof.ttl);
    // A writer in the queue does not change that: it holds already.
    assert!(is_busy(&store, &queued("a", LockMode::Write)).await);
    assert_eq!(grant(&store, &second.claim).await.token, second.token);
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(record.holders, 2);
}

#[tokio::test]
async fn a_reader_does_not_pass_a_writer_that_waits() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let first = hold(&store, LockMode::Read).await;
    let writer = queued("a", LockMode::Write);
    let later = queued("a", LockMode::Read);
    assert!(is_busy(&store, &writer).await && is_busy(&store, &later).await);
    release(&store, &first).await;
    assert!(is_busy(&store, &later).await);
    let held = grant(&store, &writer).await;
    release(&store, &held).await;
    let _held = grant(&store, &later).await;
}

#[tokio::test]
async fn a_withdrawn_reader_is_never_granted_and_harms_no_other() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let [one, other] = [
        hold(&store, LockMode::Read).await,
        hold(&store, LockMode::Read).await,
    ];
    store.withdraw(&one.claim).await.unwrap();
    let error = store.acquire(&one.claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let renewed = store.renew(&[one, other]).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Extended(_)]),
        "{renewed:?}"
    );
}

#[tokio::test]
async fn a_downgrade_lets_neither_a_waiting_writer_nor_a_plain_client_in_between() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let writer = hold(&store, LockMode::Write).await;
    let next = queued("a", LockMode::Write);
    let reader = queued("a", LockMode::Read);
    assert!(is_busy(&store, &next).await && is_busy(&store, &reader).await);
    server.cli(&["PEXPIRE", "app:a", "7000"]);
    let mut hint = store.subscribe(&next).await.unwrap();
    let downgraded = store.downgrade(&writer).await.unwrap();
    assert_eq!(downgraded.claim.mode, LockMode::Read);
    assert_eq!(downgraded.claim.owner, writer.claim.owner);
    assert_eq!(downgraded.token, writer.token);
    assert!(downgraded.proof.ttl <= Duration::from_secs(7));
    assert!((1..=7_000).contains(&left(&server)), "its time stays");
    assert!(is_kept_out(&server));
    assert!(is_busy(&store, &next).await);
    // It stands behind the writer.
    assert!(is_busy(&store, &reader).await);
    // By whichever mode it is named.
    for grant in [&writer, &downgraded] {
        let renewed = store.renew(std::slice::from_ref(grant)).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    }
    assert_eq!(store.downgrade(&writer).await.unwrap().token, writer.token);
    assert!(
        (&mut hint).now_or_never().is_none(),
        "nothing changed for it"
    );
    release(&store, &writer).await;
    hint.await;
    let _held = grant(&store, &next).await;
}

/// As if the lock was left to others for the last time so many seconds ago.
fn left_to_others(server: &RedisServer, seconds: u64) {
    let now = server.cli(&["EVAL", "return redis.call('TIME')[1]", "0"]);
    let last = (now.parse::<u64>().unwrap() - seconds) * 1_000;
    let line = "app:a{app:a}:line";
    server.cli(&["SET", line, &last.to_string(), "PX", "60000"]);
}

#[tokio::test]
async fn a_reader_that_stays_keeps_other_readers_out_for_some_seconds_only() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _stays = hold(&store, LockMode::Read).await;
    for (seconds, is_open) in [
        (20, true),
        (33, false),
        (45, true),
        (73, false),
        (90, true),
        (200, true),
        (86_400, true),
    ] {
        left_to_others(&server, seconds);
        let next = queued("a", LockMode::Read);
        assert_eq!(is_busy(&store, &next).await, !is_open, "{seconds} s");
        store.withdraw(&next).await.unwrap();
    }
}

#[tokio::test]
async fn a_writer_that_gives_up_does_not_let_the_readers_begin_their_turn_anew() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _stays = hold(&store, LockMode::Read).await;
    left_to_others(&server, 33);
    let mut writer = queued("a", LockMode::Write);
    writer.place_ttl = Duration::from_secs(1);
    assert!(is_busy(&store, &writer).await);
    store.withdraw(&writer).await.unwrap();
    let turn = server.cli(&["PTTL", "app:a{app:a}:line"]);
    // It was a minute, and a test takes less than half of one.
    assert!(turn.parse::<u64>().unwrap() > 30_000, "{turn}");
}

#[tokio::test]
async fn a_request_to_write_that_comes_after_its_downgrade_is_refused() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let writer = hold(&store, LockMode::Write).await;
    let reads = store.downgrade(&writer).await.unwrap();
    let other = hold(&store, LockMode::Read).await;
    let error = store.acquire(&writer.claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // One to read is answered.
    assert_eq!(grant(&store, &reads.claim).await.token, reads.token);
    release(&store, &other).await;
    release(&store, &reads).await;
}

#[tokio::test]
async fn readers_that_waited_for_a_writer_join_it_however_long_it_worked() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let writer = hold(&store, LockMode::Write).await;
    let reader = queued("a", LockMode::Read);
    assert!(is_busy(&store, &reader).await);
    left_to_others(&server, 33);
    let _downgraded = store.downgrade(&writer).await.unwrap();
    let _joined = grant(&store, &reader).await;
}

#[test]
fn a_thread_without_a_runtime_downgrades() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connected = runtime.block_on(LockManager::connect(&server.url(FRESH)));
    // It was needed to connect, and for nothing after that.
    drop(runtime);
    let lock = connected.unwrap().read_write("a");
    let writer = block_on(lock.write()).unwrap();
    let token = writer.token();
    let reader = block_on(writer.downgrade()).unwrap();
    assert_eq!(reader.token(), token);
    let other = block_on(lock.try_read()).unwrap().unwrap();
    for reader in [reader, other] {
        assert!(matches!(block_on(reader.release()), Ok(Released::Released)));
    }
}

#[tokio::test]
async fn what_is_no_writers_hold_is_not_downgraded() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let exclusive = grant(&store, &claim("a")).await;
    let error = store.downgrade(&exclusive).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    release(&store, &exclusive).await;

    let writer = hold(&store, LockMode::Write).await;
    server.cli(&["RPUSH", "app:a{app:a}:grants", "1"]);
    let error = store.downgrade(&writer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let value = server.cli(&["GET", "app:a"]);
    assert!(value.starts_with(&writer.claim.owner.expose()), "{value}");
    server.cli(&["DEL", "app:a{app:a}:grants", "app:a"]);
    let error = store.downgrade(&writer).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
}

#[tokio::test]
async fn the_lock_info_reports_mode_holders_and_queue() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let reported = async |what: &str| {
        let mut record = store.inspect(&key("a")).await.unwrap().unwrap();
        let named = (record.labels.len(), record.waiters.len());
        // Another client has no name.
        let holders = record.label.as_ref().map_or(0, |_| record.holders);
        assert_eq!(named, (holders, record.queue.unwrap()), "{what}");
        // A list names nobody but the latest holder.
        (record.labels, record.waiters) = Default::default();
        let mut listed = store.list("").await.unwrap();
        // Its time runs meanwhile.
        listed[0].remaining = record.remaining;
        assert_eq!(listed[0].held_for.is_some(), record.held_for.is_some());
        listed[0].held_for = record.held_for;
        assert_eq!(listed, std::slice::from_ref(&record), "{what}");
        (record.mode, record.holders, record.queue, record.token)
    };
    let writer = hold(&store, LockMode::Write).await;
    let waiting = queued("a", LockMode::Write);
    assert!(is_busy(&store, &waiting).await);
    let expected = (Some(LockMode::Write), 1, Some(1), Some(writer.token));
    assert_eq!(reported("a writer").await, expected);
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(record.label, Some(writer.claim.label.clone()));
    store.withdraw(&waiting).await.unwrap();
    let first = store.downgrade(&writer).await.unwrap();
    let expected = (Some(LockMode::Read), 1, Some(0), Some(first.token));
    assert_eq!(reported("a reader").await, expected);
    let second = hold(&store, LockMode::Read).await;
    let expected = (Some(LockMode::Read), 2, Some(0), Some(second.token));
    assert_eq!(reported("two readers").await, expected);
    release(&store, &second).await;
    release(&store, &first).await;
    let exclusive = grant(&store, &claim("a")).await;
    let expected = (Some(LockMode::Exclusive), 1, Some(0), Some(exclusive.token));
    assert_eq!(reported("one alone").await, expected);
    release(&store, &exclusive).await;
    server.cli(&["SET", "app:a", "theirs", "PX", "60000"]);
    assert_eq!(reported("another client").await, (None, 1, Some(0), None));
}

#[tokio::test]
async fn every_script_is_loaded_again_after_a_flush() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let flush = || server.cli(&["SCRIPT", "FLUSH"]);
    flush();
    let writer = hold(&store, LockMode::Write).await;
    flush();
    let reader = store.downgrade(&writer).await.unwrap();
    flush();
    let renewed = store.renew(std::slice::from_ref(&reader)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]));
    flush();
    store.withdraw(&queued("a", LockMode::Write)).await.unwrap();
    flush();
    let revoked = store.revoke(&key("a"), leasehold::store::Revoke::Now).await;
    assert!(revoked.is_ok(), "{revoked:?}");
    // A plain claim is sent from one script to the other.
    let head = queued("b", LockMode::Exclusive);
    let held = grant(&store, &claim("b")).await;
    assert!(is_busy(&store, &head).await);
    release(&store, &held).await;
    flush();
    assert!(is_busy(&store, &once(claim("b"))).await);
}

#[tokio::test]
async fn a_claim_that_queues_and_that_no_replica_confirmed_is_in_doubt_until_it_is_withdrawn() {
    let master = RedisServer::start();
    let options = "prefix=app&restart_quarantine=off&replicas=1&replica_wait=100ms";
    let store = RedisStore::connect(&master.url(options)).await.unwrap();
    // There is no replica: whatever is granted is not confirmed, however often it is asked for.
    for mode in [LockMode::Read, LockMode::Write, LockMode::Exclusive] {
        let ours = queued("a", mode);
        for _ in 0..2 {
            let error = store.acquire(&ours).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
        }
        store.withdraw(&ours).await.unwrap();
        assert_eq!(
            master.cli(&["EXISTS", "app:a", "app:a{app:a}:readers"]),
            "0"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_two_managers_never_meet() {
    let server = RedisServer::start();
    let inside = std::sync::Arc::new(std::sync::Mutex::new((0_u32, 0_u32)));
    let mut callers = Vec::new();
    for _ in 0..2 {
        let locks = LockManager::connect(&server.url(FRESH)).await.unwrap();
        for caller in 0..4 {
            let (locks, inside) = (locks.clone(), std::sync::Arc::clone(&inside));
            callers.push(tokio::spawn(async move {
                let lock = locks.read_write("a");
                for round in 0..15 {
                    if (caller + round) % 3 == 0 {
                        let guard = lock.write().await.unwrap();
                        let now = {
                            let mut inside = inside.lock().unwrap();
                            inside.1 += 1;
                            *inside
                        };
                        assert_eq!(now, (0, 1), "readers and writers");
                        tokio::task::yield_now().await;
                        inside.lock().unwrap().1 -= 1;
                        let _ = guard.release().await;
                    } else {
                        let guard = lock.read().await.unwrap();
                        let writers = {
                            let mut inside = inside.lock().unwrap();
                            inside.0 += 1;
                            inside.1
                        };
                        assert_eq!(writers, 0, "a reader beside a writer");
                        tokio::task::yield_now().await;
                        inside.lock().unwrap().0 -= 1;
                        let _ = guard.release().await;
                    }
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let beside = ["queue", "line", "places", "readers", "grants"];
    for what in beside.map(|what| format!("app:a{{app:a}}:{what}")) {
        assert_eq!(server.cli(&["EXISTS", &what]), "0", "{what}");
    }
}

#[tokio::test]
async fn a_lock_that_is_read_is_no_lock_to_a_claim_that_does_not_queue() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let reader = hold(&store, LockMode::Read).await;
    match store.acquire(&once(claim("a"))).await.unwrap() {
        Acquired::Busy { remaining } => assert!(remaining.unwrap() <= reader.proof.ttl),
        granted => panic!("{granted:?}"),
    }
    release(&store, &reader).await;
    let _held = grant(&store, &claim("a")).await;
}
