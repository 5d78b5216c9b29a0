//! Claims that queue in a Redis server: places that end, the order over managers, what stands in
//! the server.
//!
//! Where a place or a hold has to be over, its end is moved in the server: no test waits for one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::claims::{claim, grant, is_busy, key, once, queued, release};
use crate::other_holder::wait_for;
use crate::server::{RedisServer, breathe};
use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Claim, Hint, LockMode, Released, Revoke, Revoked, Store};
use leasehold::{ErrorKind, LockManager};

const FRESH: &str = "prefix=app&restart_quarantine=off";
/// The keys beside the lock `a`.
const BESIDE: [&str; 5] = ["queue", "line", "places", "readers", "grants"];

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

fn beside(what: &str) -> String {
    format!("app:a{{app:a}}:{what}")
}

/// For how long the next in line holds before it has asked.
const HANDOVER: Duration = Duration::from_millis(1_200);

/// Waits for a message that has to come.
async fn woken(hint: Hint) {
    let clock = Clock::system().unwrap();
    let woken = clock.timeout(Duration::from_secs(60), hint).await;
    woken.expect("nobody was woken");
}

/// The claim that was called, which holds from now on for as long as the test takes.
fn next_of(server: &RedisServer) -> String {
    server.cli(&["PERSIST", "app:a"]);
    let value = server.cli(&["GET", "app:a"]);
    value.split(' ').next().unwrap_or_default().to_owned()
}

/// The text that is a claim, and its place.
fn text_of(claim: &Claim) -> String {
    let mode = match claim.mode {
        LockMode::Exclusive => "x",
        LockMode::Write => "w",
        _ => "r",
    };
    format!("{} {mode} {}", claim.owner.expose(), claim.label)
}

/// The waiter asked for the last time longer ago than its place lasts.
fn end_place(server: &RedisServer, claim: &Claim) {
    let changed = ["ZADD", &beside("places"), "XX", "CH", "1"];
    assert_eq!(
        server.cli(&[&changed[..], &[&text_of(claim)]].concat()),
        "1"
    );
}

/// As if its client had died, and its ttl were over.
fn end_reader(server: &RedisServer, reader: &Claim) {
    let owner = reader.owner.expose();
    let changed = server.cli(&["ZADD", &beside("readers"), "XX", "CH", "1", &owner]);
    assert_eq!(changed, "1");
}

async fn busy_for(store: &RedisStore, claim: &Claim) -> Duration {
    match store.acquire(claim).await.unwrap() {
        Acquired::Busy { remaining } => remaining.unwrap(),
        granted => panic!("{granted:?}"),
    }
}

#[tokio::test]
async fn a_fair_hold_is_the_plain_key_with_its_owner_and_its_time() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &queued("a", LockMode::Exclusive)).await;
    let value = server.cli(&["GET", "app:a"]);
    assert!(value.starts_with(&held.claim.owner.expose()), "{value}");
    assert_eq!(server.cli(&["SET", "app:a", "x", "NX", "PX", "5000"]), "");
    let left: u64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!((5_000..=10_000).contains(&left), "{left}");
    release(&store, &held).await;
    assert_eq!(server.cli(&["SET", "app:a", "x", "NX", "PX", "5000"]), "OK");
}

#[tokio::test]
async fn who_waits_for_another_client_keeps_its_place_before_who_came_later() {
    let server = RedisServer::start();
    let store = store(&server).await;
    server.cli(&["SET", "app:a", "theirs", "NX", "PX", "60000"]);
    let first = queued("a", LockMode::Exclusive);
    let later = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &first).await && is_busy(&store, &later).await);
    assert_eq!(server.cli(&["GET", "app:a"]), "theirs");
    server.cli(&["DEL", "app:a"]);
    assert!(is_busy(&store, &later).await);
    let _held = grant(&store, &first).await;
}

#[tokio::test]
async fn dead_heads_are_skipped_together_when_their_places_end() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let dead: Vec<_> = (0..5).map(|_| queued("a", LockMode::Exclusive)).collect();
    for claim in &dead {
        assert!(is_busy(&store, claim).await);
    }
    let live = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &live).await);
    release(&store, &held).await;
    // The first is next, for the time of a handover.
    assert!(busy_for(&store, &live).await <= HANDOVER);
    for claim in &dead[1..4] {
        end_place(&server, claim);
    }
    for next in [&dead[0], &dead[4]] {
        assert_eq!(next_of(&server), next.owner.expose());
        // It did not ask in time.
        server.cli(&["DEL", "app:a"]);
        let _ = store.acquire(&live).await.unwrap();
    }
    let _held = grant(&store, &live).await;
}

#[tokio::test]
async fn a_lock_with_a_queue_is_never_free_between_two_holders() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    // Plain and fair ones wait in one queue.
    let [first, second] = [claim("a"), queued("a", LockMode::Write)];
    assert!(is_busy(&store, &first).await && is_busy(&store, &second).await);
    release(&store, &held).await;
    let left: i64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!(left <= 1_200, "{left}");
    assert_eq!(next_of(&server), first.owner.expose());
    assert_eq!(server.cli(&["SET", "app:a", "x", "NX", "PX", "5000"]), "");
    for stranger in [once(claim("a")), once(queued("a", LockMode::Read))] {
        assert!(is_busy(&store, &stranger).await);
    }
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    let held = grant(&store, &first).await;
    let reported = (record.holders, record.token, record.label, record.queue);
    let label = Some(first.label.clone());
    assert_eq!(
        reported,
        (1, Some(held.token), label, Some(1)),
        "it holds already"
    );
    assert_eq!(server.cli(&["PTTL", "app:a"]).len(), 4, "its whole time");
    // A withdrawal frees nothing either.
    store.withdraw(&held.claim).await.unwrap();
    assert_eq!(next_of(&server), second.owner.expose());
    store.withdraw(&second).await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

#[tokio::test]
async fn a_release_passes_over_places_that_have_ended() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let [gone, live] = [(); 2].map(|()| claim("a"));
    assert!(is_busy(&store, &gone).await && is_busy(&store, &live).await);
    end_place(&server, &gone);
    release(&store, &held).await;
    assert_eq!(next_of(&server), live.owner.expose());
}

#[tokio::test]
async fn a_withdrawal_of_who_is_next_hands_the_lock_on() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let [next, behind] = [(); 2].map(|()| claim("a"));
    assert!(is_busy(&store, &next).await && is_busy(&store, &behind).await);
    let hint = store.subscribe(&behind).await.unwrap();
    release(&store, &held).await;
    assert_eq!(next_of(&server), next.owner.expose());
    store.withdraw(&next).await.unwrap();
    woken(hint).await;
    assert_eq!(next_of(&server), behind.owner.expose());
    let error = store.acquire(&next).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let _held = grant(&store, &behind).await;
}

#[tokio::test]
async fn a_lock_is_revoked_from_who_was_called_and_goes_to_the_next() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let [next, behind] = [(); 2].map(|()| claim("a"));
    assert!(is_busy(&store, &next).await && is_busy(&store, &behind).await);
    release(&store, &held).await;
    assert_eq!(next_of(&server), next.owner.expose());
    let revoked = store.revoke(&key("a"), Revoke::Now).await.unwrap();
    assert!(matches!(revoked, Revoked::Revoked { .. }), "{revoked:?}");
    assert_eq!(next_of(&server), behind.owner.expose());
    let _held = grant(&store, &behind).await;
}

#[tokio::test]
async fn readers_at_the_head_of_the_queue_are_next_together() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &queued("a", LockMode::Write)).await;
    let readers = [(); 3].map(|()| queued("a", LockMode::Read));
    let writer = queued("a", LockMode::Write);
    for claim in readers.iter().chain([&writer]) {
        assert!(is_busy(&store, claim).await);
    }
    release(&store, &held).await;
    assert_eq!(server.cli(&["GET", "app:a"]), "leasehold:readers");
    assert_eq!(server.cli(&["ZCARD", &beside("queue")]), "1");
    // One has died, one gives up, and one reads: the writer waits for the one that reads.
    store.withdraw(&readers[0]).await.unwrap();
    let reads = grant(&store, &readers[1]).await;
    assert!(is_busy(&store, &writer).await);
    let left: u64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!(left > 5_000, "{left}");
    release(&store, &reads).await;
    store.withdraw(&readers[2]).await.unwrap();
    assert_eq!(next_of(&server), writer.owner.expose());
    let _held = grant(&store, &writer).await;
}

#[tokio::test]
async fn a_place_lasts_as_long_as_its_claim_says() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let mut short = queued("a", LockMode::Exclusive);
    short.place_ttl = Duration::from_millis(300);
    let live = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &short).await && is_busy(&store, &live).await);
    release(&store, &held).await;
    // The server counts by its own clock.
    while is_busy(&store, &live).await {
        breathe().await;
    }
    assert!(is_busy(&store, &short).await);
    short.place_ttl = Duration::from_secs(90_000);
    let error = store.acquire(&short).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_waiter_whose_place_ended_rejoins_at_the_end() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let late = queued("a", LockMode::Exclusive);
    let next = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &late).await && is_busy(&store, &next).await);
    end_place(&server, &late);
    assert!(is_busy(&store, &late).await);
    release(&store, &held).await;
    assert!(is_busy(&store, &late).await);
    let held = grant(&store, &next).await;
    release(&store, &held).await;
    let _held = grant(&store, &late).await;
}

#[tokio::test]
async fn who_gave_up_leaves_nothing_in_the_server() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &queued("a", LockMode::Write)).await;
    let waiting: Vec<_> = [LockMode::Exclusive, LockMode::Read, LockMode::Write]
        .map(|mode| queued("a", mode))
        .into();
    for claim in &waiting {
        assert!(is_busy(&store, claim).await);
    }
    for what in ["queue", "line", "places"] {
        let left: i64 = server.cli(&["PTTL", &beside(what)]).parse().unwrap();
        assert!((1..=10_000).contains(&left), "{what}: {left}");
    }
    for claim in &waiting {
        store.withdraw(claim).await.unwrap();
        let error = store.acquire(claim).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    release(&store, &held).await;
    for what in BESIDE {
        assert_eq!(server.cli(&["EXISTS", &beside(what)]), "0", "{what}");
    }
}

#[tokio::test]
async fn the_keys_of_a_queue_end_and_not_before_its_latest_place() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _held = grant(&store, &queued("a", LockMode::Write)).await;
    let left = |what| -> i64 { server.cli(&["PTTL", &beside(what)]).parse().unwrap() };
    assert!(is_busy(&store, &queued("a", LockMode::Read)).await);
    for what in ["queue", "line", "places"] {
        assert!(left(what) > 0, "{what}");
    }
    let mut longest = queued("a", LockMode::Exclusive);
    longest.place_ttl = Duration::from_secs(600);
    assert!(is_busy(&store, &longest).await);
    assert!(is_busy(&store, &queued("a", LockMode::Write)).await);
    for what in ["queue", "line", "places"] {
        assert!(left(what) > 500_000, "{what}: {}", left(what));
    }
}

#[tokio::test]
async fn a_reader_whose_hold_ended_is_granted_under_a_newer_token() {
    let server = RedisServer::start();
    let store = store(&server).await;
    // Its answer was lost, and it asks again when its ttl is over. Another one reads all the time.
    let lost = grant(&store, &queued("a", LockMode::Read)).await;
    let other = grant(&store, &queued("a", LockMode::Read)).await;
    let writer = queued("a", LockMode::Write);
    assert!(is_busy(&store, &writer).await);
    end_reader(&server, &lost.claim);
    assert!(is_busy(&store, &lost.claim).await);
    store.withdraw(&writer).await.unwrap();
    let again = grant(&store, &lost.claim).await;
    assert!(again.token > other.token, "{again:?} {other:?}");
}

#[tokio::test]
async fn a_reader_that_ends_late_hands_on_the_lock_that_it_frees() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for ends in ["release", "withdraw"] {
        let reader = queued("a", LockMode::Read);
        let held = grant(&store, &reader).await;
        let writer = queued("a", LockMode::Write);
        assert!(is_busy(&store, &writer).await);
        end_reader(&server, &reader);
        match ends {
            "release" => assert!(matches!(store.release(&held).await, Released::AlreadyGone)),
            _ => store.withdraw(&reader).await.unwrap(),
        }
        assert_eq!(next_of(&server), writer.owner.expose(), "{ends}");
        store.withdraw(&writer).await.unwrap();
    }
}

#[tokio::test]
async fn readers_that_were_called_keep_the_lock_no_longer_than_their_ttls() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let mut reader = queued("a", LockMode::Read);
    reader.ttl = HANDOVER / 2;
    assert!(is_busy(&store, &reader).await);
    release(&store, &held).await;
    let _reads = grant(&store, &reader).await;
    // -2: its time is over already. -1 would be a key without an end.
    let left: i128 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    let most = reader.ttl.as_millis() as i128;
    assert!(left != -1 && left <= most, "{left}");
}

#[tokio::test]
async fn a_key_of_a_wrong_type_beside_the_lock_is_corrupt_and_untouched() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for what in BESIDE {
        server.cli(&["FLUSHALL"]);
        // Whoever needs it looks at it: who waits, or who reads.
        if !["readers", "grants"].contains(&what) {
            server.cli(&["SET", "app:a", "theirs", "PX", "60000"]);
        }
        server.cli(&["RPUSH", &beside(what), "1"]);
        let modes = if server.cli(&["EXISTS", "app:a"]) == "1" {
            &[LockMode::Exclusive, LockMode::Read, LockMode::Write][..]
        } else {
            &[LockMode::Read]
        };
        for mode in modes {
            let claim = queued("a", *mode);
            let error = store.acquire(&claim).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        }
        assert_eq!(server.cli(&["LRANGE", &beside(what), "0", "-1"]), "1");
        assert_ne!(server.cli(&["GET", "app:a"]), "leasehold:readers", "{what}");
    }
}

#[tokio::test]
async fn a_withdrawal_of_a_place_wakes_who_waits_behind_it() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _held = grant(&store, &queued("a", LockMode::Read)).await;
    let writer = queued("a", LockMode::Write);
    let reader = queued("a", LockMode::Read);
    assert!(is_busy(&store, &writer).await && is_busy(&store, &reader).await);
    let hint = store.subscribe(&reader).await.unwrap();
    store.withdraw(&writer).await.unwrap();
    woken(hint).await;
    let _held = grant(&store, &reader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_two_managers_are_served_in_the_order_of_their_arrival() {
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for _ in 0..2 {
        managers.push(LockManager::connect(&server.url(FRESH)).await.unwrap());
    }
    let held = managers[0].lock("a").fair().acquire().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for number in 0..8 {
        let lock = managers[number % 2].lock("a").fair();
        let reported = Arc::clone(&served);
        callers.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            reported.lock().unwrap().push(number);
            let _ = guard.release().await;
        }));
        // The next comes when this one stands in the queue.
        while server.cli(&["ZCARD", &beside("queue")]) != (number + 1).to_string() {
            breathe().await;
        }
    }
    let record = managers[1].inspect("a").await.unwrap().unwrap();
    assert_eq!((record.holders, record.queue), (1, Some(8)));
    let _ = held.release().await;
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_lock_that_dead_readers_left_is_free_to_who_does_not_wait() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for mode in [LockMode::Exclusive, LockMode::Read, LockMode::Write] {
        let _died = grant(&store, &queued("a", LockMode::Read)).await;
        // Long after it: its line is there, and nothing else.
        let ended = ["DEL", "app:a", &beside("readers"), &beside("grants")];
        assert_eq!(server.cli(&ended), "3");
        let long_ago = ["SET", &beside("line"), "1000", "XX", "KEEPTTL"];
        assert_eq!(server.cli(&long_ago), "OK");
        let held = grant(&store, &once(queued("a", mode))).await;
        release(&store, &held).await;
        assert_eq!(server.cli(&["KEYS", "app:a*"]), "", "{mode}");
    }
}

#[tokio::test]
async fn what_is_not_ours_beside_a_lock_is_not_deleted_and_gets_no_end() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (what, mode) in [("line", LockMode::Exclusive), ("grants", LockMode::Read)] {
        let held = grant(&store, &queued("a", mode)).await;
        server.cli(&["DEL", &beside(what)]);
        server.cli(&["RPUSH", &beside(what), "theirs"]);
        let _ = store.renew(std::slice::from_ref(&held)).await;
        let _ = store.release(&held).await;
        let kept = server.cli(&["LRANGE", &beside(what), "0", "-1"]);
        assert_eq!(kept, "theirs", "{what}");
        assert_eq!(server.cli(&["PTTL", &beside(what)]), "-1", "{what}");
        server.cli(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_counter_that_is_not_ours_costs_nobody_its_place() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let waits = claim("a");
    assert!(is_busy(&store, &waits).await);
    let token = "app:{leasehold}:token";
    let last = server.cli(&["GET", token]);
    server.cli(&["SET", token, "theirs"]);
    let _ = store.release(&held).await;
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let first = server.cli(&["ZRANGE", &beside("queue"), "0", "0"]);
    assert_eq!(first, text_of(&waits));
    assert_eq!(server.cli(&["SET", token, &last]), "OK");
    let held = wait_for(&store, &waits).await;
    assert!(held.token.number() > last.parse().unwrap());
}
