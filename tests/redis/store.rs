//! The Redis store against a real server: turns with other clients, tokens, foreign values,
//! wake-ups.

use std::time::Duration;

use crate::claims::{TTL, claim, claim_for, grant, is_busy, key, once, queued, release};
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe};
use leasehold::ErrorKind;
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::{Acquired, LockMode, Released, Renewed, Store};

/// A throw-away server: nothing was granted on it before.
const FRESH: &str = "prefix=app&restart_quarantine=off";

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

#[tokio::test]
async fn a_plain_client_waits_while_we_hold() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a/7")).await;
    assert_eq!(
        server.cli(&["SET", "app:a/7", "other", "NX", "PX", "5000"]),
        ""
    );
    let value = server.cli(&["GET", "app:a/7"]);
    assert!(value.starts_with(&held.claim.owner.expose()), "{value}");

    assert!(matches!(store.release(&held).await, Released::Released));
    assert_eq!(
        server.cli(&["SET", "app:a/7", "other", "NX", "PX", "5000"]),
        "OK"
    );
}

#[tokio::test]
async fn the_server_of_a_client_is_used_with_its_password_and_its_database() {
    let server = RedisServer::start_with(&["--requirepass", CANARY]);
    let address = format!("redis://:{CANARY}@127.0.0.1:{}/3", server.port());
    let client = ::redis::Client::open(address).unwrap();
    let of_client = |options: &str| {
        let server = client.get_connection_info().clone();
        RedisOptions::of_client(server, options)
    };
    let options = of_client(FRESH).unwrap();
    assert!(!format!("{options:?}").contains(CANARY));
    let store = RedisStore::connect_with(options).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let by_hand = |database| {
        let mut connection = client.get_connection().unwrap();
        ::redis::cmd("SELECT")
            .arg(database)
            .exec(&mut connection)
            .unwrap();
        let found = ::redis::cmd("EXISTS").arg("app:a").query(&mut connection);
        found.map(|found: i64| found == 1).unwrap()
    };
    assert!(by_hand(3));
    assert!(!by_hand(0));
    assert!(matches!(store.release(&held).await, Released::Released));
    for options in ["prefixx=app", "max_ttl=1", "a@b/1?prefix=app", "ca=/no/tls"] {
        let error = of_client(options).expect_err(options);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{options}: {error}");
    }
}

#[tokio::test]
async fn a_foreign_value_is_waited_for_and_never_deleted_or_extended() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let ours = claim("a");
    let held = grant(&store, &ours).await;
    server.cli(&["DEL", "app:a"]);
    server.cli(&["SET", "app:a", "theirs", "NX", "PX", "60000"]);

    match store.acquire(&claim("a")).await.unwrap() {
        Acquired::Busy { remaining } => assert!(remaining.unwrap() > Duration::from_secs(50)),
        other => panic!("{other:?}"),
    }
    assert!(is_busy(&store, &ours).await);
    assert!(matches!(
        store.renew(std::slice::from_ref(&held)).await[..],
        [Renewed::Gone]
    ));
    assert!(matches!(store.release(&held).await, Released::AlreadyGone));
    store.withdraw(&ours).await.unwrap();

    assert_eq!(server.cli(&["GET", "app:a"]), "theirs");
    let left: u64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!(left > 50_000, "{left}");
}

#[tokio::test]
async fn a_key_of_a_wrong_type_is_corrupt_and_untouched() {
    let server = RedisServer::start();
    let store = store(&server).await;
    server.cli(&["RPUSH", "app:a", "1", "2"]);
    let ours = claim("a");
    assert_eq!(
        store.acquire(&ours).await.unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(
        store.inspect(&ours.key).await.unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    store.withdraw(&ours).await.unwrap();
    assert_eq!(server.cli(&["LRANGE", "app:a", "0", "-1"]), "1\n2");

    // In a batch it does not stop the others.
    let first = grant(&store, &claim("b")).await;
    let second = grant(&store, &claim("c")).await;
    server.cli(&["DEL", "app:b"]);
    server.cli(&["RPUSH", "app:b", "1"]);
    let renewed = store.renew(&[first.clone(), second]).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Extended(_)]),
        "{renewed:?}"
    );
    assert!(matches!(store.release(&first).await, Released::AlreadyGone));
    assert_eq!(server.cli(&["LRANGE", "app:b", "0", "-1"]), "1");
}

#[tokio::test]
async fn a_claim_that_holds_is_granted_again_with_the_same_token() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let ours = claim("a");
    let first = grant(&store, &ours).await;
    let again = grant(&store, &ours).await;
    assert_eq!(again.token, first.token);
    assert!(again.proof.ttl <= first.proof.ttl);
    assert!(is_busy(&store, &once(claim("a"))).await);
}

#[tokio::test]
async fn scripts_are_loaded_again_after_a_flush_in_batches_too() {
    let server = RedisServer::start();
    let store = store(&server).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    let mut grants = Vec::new();
    for number in 0..1_200 {
        grants.push(grant(&store, &claim(&format!("k{number}"))).await);
    }
    server.cli(&["SCRIPT", "FLUSH"]);
    let renewed = store.renew(&grants).await;
    assert_eq!(renewed.len(), 1_200);
    assert!(
        renewed
            .iter()
            .all(|one| matches!(one, Renewed::Extended(_)))
    );
    server.cli(&["SCRIPT", "FLUSH"]);
    assert!(matches!(
        store.release(&grants[0]).await,
        Released::Released
    ));
    server.cli(&["SCRIPT", "FLUSH"]);
    store.withdraw(&grants[1].claim).await.unwrap();
    server.cli(&["SCRIPT", "FLUSH"]);
    assert!(store.inspect(&key("k2")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut grants = Vec::new();
    for number in 0..1_003 {
        grants.push(grant(&store, &claim(&format!("k{number}"))).await);
    }
    // One in each of three batches.
    for gone in [3, 777, 1_002] {
        server.cli(&["DEL", &format!("app:k{gone}")]);
    }
    let renewed = store.renew(&grants).await;
    for (number, one) in renewed.iter().enumerate() {
        let is_gone = [3, 777, 1_002].contains(&number);
        assert_eq!(matches!(one, Renewed::Gone), is_gone, "{number}: {one:?}");
    }
}

#[tokio::test]
async fn each_of_a_batch_is_extended_by_its_own_ttl() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let seconds = [5, 5, 20, 10, 10, 5];
    let mut grants = Vec::new();
    for (number, ttl) in seconds.into_iter().enumerate() {
        let claim = claim_for(&format!("k{number}"), Duration::from_secs(ttl));
        grants.push(grant(&store, &claim).await);
        server.cli(&["PERSIST", &format!("app:k{number}")]);
    }
    let renewed = store.renew(&grants).await;
    assert_eq!(renewed.len(), seconds.len());
    for (number, ttl) in seconds.into_iter().enumerate() {
        let proven = Duration::from_secs(ttl);
        assert!(
            matches!(&renewed[number], Renewed::Extended(proof) if proof.ttl == proven),
            "{number}: {renewed:?}"
        );
        let left = server.cli(&["PTTL", &format!("app:k{number}")]);
        let left: u64 = left.parse().unwrap();
        assert!(
            (ttl * 1_000 - 4_000..=ttl * 1_000).contains(&left),
            "{number}: {left} of {ttl} s"
        );
    }
}

#[tokio::test]
async fn a_key_that_an_operator_deleted_is_not_created_by_a_renewal() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    server.cli(&["DEL", "app:a"]);
    assert!(matches!(
        store.renew(std::slice::from_ref(&held)).await[..],
        [Renewed::Gone]
    ));
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
    assert!(matches!(store.release(&held).await, Released::AlreadyGone));
    let next = grant(&store, &claim("a")).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn a_renewal_sets_the_full_ttl() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    server.cli(&["PEXPIRE", "app:a", "900"]);
    assert!(
        matches!(store.renew(std::slice::from_ref(&held)).await[..], [Renewed::Extended(proof)] if proof.ttl == TTL)
    );
    let left: u64 = server.cli(&["PTTL", "app:a"]).parse().unwrap();
    assert!(left > 900, "{left}");
}

#[tokio::test]
async fn a_ttl_above_max_ttl_is_refused() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for ttl in [
        Duration::ZERO,
        Duration::from_micros(999),
        Duration::from_secs(31),
    ] {
        let error = store.acquire(&claim_for("a", ttl)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{ttl:?}");
    }
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

#[tokio::test]
async fn clients_of_a_prefix_that_disagree_on_max_ttl_are_refused() {
    let server = RedisServer::start();
    let first = RedisStore::connect(&server.url("prefix=app&max_ttl=20s"))
        .await
        .unwrap();
    let second = RedisStore::connect(&server.url("prefix=app&max_ttl=40s"))
        .await
        .unwrap();
    // In the quarantine of a new server, which is as long as the first says.
    assert!(is_busy(&first, &once(claim("a"))).await);
    let error = second.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("theirs=20000ms"), "{error}");
    let marker = "delete the key app:{leasehold}:marker";
    assert!(error.to_string().contains(marker), "{error}");
    assert_eq!(server.cli(&["EXISTS", "app:{leasehold}:marker"]), "1");
}

#[tokio::test]
async fn a_release_wakes_who_subscribed() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let next = claim("a");
    let hint = store.subscribe(&next).await.unwrap();
    let twice = store.subscribe(&next).await.unwrap();
    assert!(is_busy(&store, &next).await);
    release(&store, &held).await;
    hint.await;
    twice.await;

    let last = claim("a");
    let hint = store.subscribe(&last).await.unwrap();
    assert!(is_busy(&store, &last).await);
    store.withdraw(&next).await.unwrap();
    hint.await;
}

#[tokio::test]
async fn many_channels_come_and_go_and_still_wake() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for number in 0..300 {
        drop(
            store
                .subscribe(&claim(&format!("k{number}")))
                .await
                .unwrap(),
        );
    }
    let channels = server.cli(&["PUBSUB", "CHANNELS"]).lines().count();
    assert!(channels <= 70, "{channels} idle channels are kept");
    let (held, next) = (grant(&store, &claim("k7")).await, claim("k7"));
    let hint = store.subscribe(&next).await.unwrap();
    assert!(is_busy(&store, &next).await);
    release(&store, &held).await;
    hint.await;
}

#[tokio::test]
async fn a_dead_subscriber_connection_resolves_its_hints_and_is_made_again() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    // Right after the kill a subscription may fail, and the caller polls; then it is there again.
    let next = claim("a");
    #[allow(clippy::async_yields_async, reason = "the hint is awaited later")]
    let subscribed = async || {
        loop {
            match store.subscribe(&next).await {
                Ok(hint) => return hint,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
            breathe().await;
        }
    };
    for _ in 0..3 {
        let hint = subscribed().await;
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        hint.await;
        assert!(is_busy(&store, &once(claim("a"))).await);
    }
    let hint = subscribed().await;
    assert!(is_busy(&store, &next).await);
    release(&store, &held).await;
    hint.await;
}

#[tokio::test]
async fn inspection_reports_label_token_and_time_left() {
    let server = RedisServer::start();
    let store = store(&server).await;
    assert_eq!(store.inspect(&key("a")).await.unwrap(), None);
    let held = grant(&store, &claim("a")).await;
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(record.label, Some(held.claim.label.clone()));
    assert_eq!(record.token, Some(held.token));
    assert!(record.remaining.unwrap() <= TTL);

    // Of another client's lock we know that it is held, and no more: not the label of the holder
    // before.
    release(&store, &held).await;
    server.cli(&["SET", "app:a", "other", "PX", "5000"]);
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!((record.label, record.token), (None, None));
}

/// The server's time, in milliseconds.
fn millis_of(server: &RedisServer) -> u64 {
    let time = server.cli(&["TIME"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    number(seconds) * 1_000 + number(micros) / 1_000
}

/// About when a grant was, by what the server keeps of it.
fn granted_at(text: &str) -> u64 {
    let mut words = text
        .split(' ')
        .skip_while(|word| !["x", "w", "r"].contains(word));
    words.nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_grant_says_about_when_it_was_until_the_next_one_and_not_when_it_was_renewed() {
    let server = RedisServer::start();
    let before = millis_of(&server);
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let value = server.cli(&["GET", "app:a"]);
    let first = granted_at(&value);
    assert!(first >= before && first <= millis_of(&server), "{value}");

    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]));
    assert_eq!(server.cli(&["GET", "app:a"]), value);

    // Handed over through the queue.
    let next = queued("a", LockMode::Exclusive);
    assert!(is_busy(&store, &next).await);
    while millis_of(&server) <= first + 100 {
        breathe().await;
    }
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert!(record.held_for.unwrap() >= Duration::from_millis(100));
    assert!(record.held_for_is_estimate);
    assert_eq!(record.label, Some(held.claim.label.clone()));
    release(&store, &held).await;
    let _held = grant(&store, &next).await;
    let second = granted_at(&server.cli(&["GET", "app:a"]));
    assert!(second > first, "{second} after {first}");
}

#[tokio::test]
async fn a_hold_that_was_downgraded_keeps_the_time_of_its_grant_and_a_reader_has_its_own() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let writer = grant(&store, &queued("a", LockMode::Write)).await;
    let first = granted_at(&server.cli(&["GET", "app:a"]));
    while millis_of(&server) <= first + 100 {
        breathe().await;
    }
    let reads = store.downgrade(&writer).await.unwrap();
    let grant_of = |owner: String| server.cli(&["HGET", "app:a{app:a}:grants", &owner]);
    assert_eq!(granted_at(&grant_of(reads.claim.owner.expose())), first);
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert!(record.held_for.unwrap() >= Duration::from_millis(100));

    let other = grant(&store, &queued("a", LockMode::Read)).await;
    let second = granted_at(&grant_of(other.claim.owner.expose()));
    assert!(second > first, "{second} after {first}");
    let record = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(record.token, Some(other.token));
    assert_eq!(record.label, Some(other.claim.label.clone()));
    assert!(record.held_for.is_some());
}

#[tokio::test]
async fn a_listing_shows_the_locks_under_our_prefix_in_order_and_nothing_else() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let names: Vec<_> = (0..700).map(|number| format!("jobs/{number:03}")).collect();
    for name in names.iter().rev() {
        let _held = grant(&store, &claim(name)).await;
    }
    let _held = grant(&store, &claim("other")).await;
    server.cli(&["SET", "app:jobs/theirs", "x", "PX", "60000"]);
    server.cli(&["SET", "elsewhere:jobs/1", "x"]);
    server.cli(&["RPUSH", "app:jobs/list", "x"]);
    let no_text = "return redis.call('SET', 'app:jobs/\\255', 'x')";
    assert_eq!(server.cli(&["EVAL", no_text, "0"]), "OK");
    let listed = store.list("jobs/").await.unwrap();
    let keys: Vec<_> = listed.iter().map(|record| record.key.to_string()).collect();
    let expected: Vec<_> = names.into_iter().chain(["jobs/theirs".into()]).collect();
    assert_eq!(keys, expected);

    let bare = RedisStore::connect(&server.url("restart_quarantine=off"))
        .await
        .unwrap();
    let _held = grant(&bare, &claim("jobs/1")).await;
    server.cli(&["SET", "jobs/data", "not a lock"]);
    let listed = bare.list("jobs/").await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|one| one.key.as_str())
            .collect::<Vec<_>>(),
        ["jobs/1"]
    );
}

#[tokio::test]
async fn a_full_server_frees_what_is_withdrawn() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let plain = claim("a");
    let reads = queued("b", LockMode::Read);
    for ours in [&plain, &reads] {
        let _held = grant(&store, ours).await;
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for ours in [&plain, &reads] {
        store.withdraw(ours).await.unwrap();
        assert_eq!(server.cli(&["EXISTS", &format!("app:{}", ours.key)]), "0");
        let error = store.acquire(ours).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    store.close().await.unwrap();
    assert_eq!(
        store.acquire(&claim("b")).await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert!(
        matches!(store.release(&held).await, Released::Unknown(error) if error.kind() == ErrorKind::Closed)
    );
}

#[test]
fn a_runtime_that_ends_takes_only_its_own_connections_along() {
    let server = RedisServer::start();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let second = runtime();
    let store = first.block_on(store(&server));
    let held = second.block_on(grant(&store, &claim("a")));
    drop(first);
    assert!(second.block_on(is_busy(&store, &once(claim("a")))));
    drop(second);
    for _ in 0..3 {
        let third = runtime();
        let renewed = third.block_on(store.renew(std::slice::from_ref(&held)));
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
        let hint = third.block_on(store.subscribe(&claim("a")));
        assert!(hint.is_ok());
    }
}

#[tokio::test]
async fn a_unix_socket_will_do() {
    let socket = std::env::temp_dir().join(format!("leasehold-{}.sock", std::process::id()));
    let server = RedisServer::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    let url = format!("unix://{}?db=3&{FRESH}", socket.display());
    let store = RedisStore::connect(&url).await.unwrap();
    let _held = grant(&store, &claim("a")).await;
    assert_eq!(server.cli(&["-n", "3", "EXISTS", "app:a"]), "1");
}
