//! Who may enter: passwords, access lists, servers that cannot keep a lock.

use std::time::Duration;

use crate::claims::{claim, claim_for, grant, is_busy, key, once, queued, release};
use crate::other_holder::wait_for;
use crate::restart::Reported;
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe, is_of_version_6};
use leasehold::clock::Clock;
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Claim, Fencing, LockMode, Released, Renewed, Revoke, Store};
use leasehold::{Error, ErrorKind, LockManager, Settings};

/// Makes the user `me`.
fn let_in(server: &RedisServer, rules: &[&str]) {
    let password = format!(">{CANARY}");
    let user = ["ACL", "SETUSER", "me", "on", &password, "resetchannels"];
    assert_eq!(server.cli(&[&user[..], rules].concat()), "OK");
}

fn url(server: &RedisServer, who: &str, query: &str) -> String {
    server
        .url(query)
        .replace("127.0.0.1", &format!("{who}@127.0.0.1"))
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_shown() {
    let server = RedisServer::start_with(&["--requirepass", CANARY]);
    for who in [format!("me:{CANARY}-not"), format!(":{CANARY}-not")] {
        let error = RedisStore::connect(&url(&server, &who, ""))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    }
    let error = RedisStore::connect(&server.url("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    let query = "restart_quarantine=off";
    let store = RedisStore::connect(&url(&server, &format!(":{CANARY}"), query))
        .await
        .unwrap();
    let _held = grant(&store, &claim("a")).await;
    assert!(!format!("{store:?}").contains(CANARY));
}

const SHORT: Duration = Duration::from_millis(50);
/// A real wait, since the server counts: short, and longer than a busy machine stands still.
const MAX_TTL: Duration = Duration::from_secs(6);

/// What an operator gives to a user of one prefix, except what the user has to know of the server.
const LIMITED: [&str; 5] = ["~app:*", WAKE, "+@all", "-@admin", "-@dangerous"];
/// The channels of the managers.
const WAKE: &str = "&app:*";

#[tokio::test]
async fn a_server_that_hides_its_run_grants_nothing_unless_restarts_are_of_no_account() {
    let server = RedisServer::start();
    let_in(&server, &LIMITED);
    let who = format!("me:{CANARY}");
    let connect = async |query| {
        RedisStore::connect(&url(&server, &who, query))
            .await
            .unwrap()
    };
    let store = connect("prefix=app").await;
    let error = store.acquire(&claim("a/7")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("+info"), "{error}");
    let store = connect("prefix=app&restart_quarantine=off").await;
    let held = grant(&store, &claim("a/7")).await;
    release(&store, &held).await;
}

/// It would leave no trace of what it holds, and whoever comes after a flush would not wait for it.
#[tokio::test]
async fn a_user_that_may_load_no_scripts_is_granted_nothing_unless_restarts_are_of_no_account() {
    let server = RedisServer::start();
    let who = format!("me:{CANARY}");
    // Version 6 takes no part of a command away.
    let parts: &[&str] = if is_of_version_6() {
        &[]
    } else {
        &["-script|exists", "-script|load"]
    };
    for right in [&["-script"][..], parts].concat() {
        let_in(&server, &[&LIMITED[..], &["+info", right]].concat());
        let connect = async |query| {
            RedisStore::connect(&url(&server, &who, query))
                .await
                .unwrap()
        };
        let store = connect("prefix=app&max_ttl=100ms").await;
        // In time a young server grants to everybody else.
        let error = loop {
            match store.acquire(&claim_for("a/7", SHORT)).await {
                Ok(Acquired::NotReady { .. }) => breathe().await,
                answer => break answer.unwrap_err(),
            }
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("+script|load"), "{error}");
        let store = connect("prefix=app:off&restart_quarantine=off").await;
        let held = grant(&store, &claim("a/7")).await;
        release(&store, &held).await;
        server.cli(&["ACL", "DELUSER", "me"]);
    }
}

#[tokio::test]
async fn a_user_that_is_limited_to_our_prefix_can_do_all_we_need() {
    let server = RedisServer::start();
    let_in(&server, &[&LIMITED[..], &["+info"]].concat());
    // It is young: so it is not trusted to have kept its locks when there is no marker.
    let query = "prefix=app&max_ttl=6s";
    let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), query))
        .await
        .unwrap();
    let ours = crate::claims::claim_for("a/7", MAX_TTL);
    assert!(is_busy(&store, &ours).await);
    let held = wait_for(&store, &ours).await;
    assert!(matches!(
        store.renew(std::slice::from_ref(&held)).await[..],
        [Renewed::Extended(_)]
    ));
    assert_eq!(store.list("").await.unwrap().len(), 1);
    let next = crate::claims::claim_for("a/7", MAX_TTL);
    let hint = store.subscribe(&next).await.unwrap();
    assert!(is_busy(&store, &next).await);
    release(&store, &held).await;
    hint.await;
    store.withdraw(&next).await.unwrap();

    let elsewhere = url(
        &server,
        &format!("me:{CANARY}"),
        "prefix=other&restart_quarantine=off",
    );
    let elsewhere = RedisStore::connect(&elsewhere).await.unwrap();
    let error = elsewhere.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// The rights that the guide lists, as words of an access list.
fn rights() -> Vec<&'static str> {
    let guide = include_str!("../../src/docs/stores/redis.md");
    let (_, rights) =
        (guide.split_once("ACL SETUSER app on >PASSWORD ")).expect("the guide lists them");
    let (rights, _) = rights.split_once("```").unwrap();
    rights.split_whitespace().collect()
}

/// All that locks are used for, until something is refused.
async fn use_all(store: &RedisStore) -> Result<(), Error> {
    let answered = |renewed: Renewed| match renewed {
        Renewed::Unknown(error) => Err(error),
        _ => Ok(()),
    };
    let released = |released: Released| match released {
        Released::Unknown(error) => Err(error),
        _ => Ok(()),
    };
    let ours = claim("a");
    let Acquired::Granted(held) = store.acquire(&ours).await? else {
        panic!("it is free");
    };
    let next = queued("a", LockMode::Write);
    let hint = store.subscribe(&next).await?;
    assert!(matches!(store.acquire(&next).await?, Acquired::Busy { .. }));
    for renewed in store.renew(std::slice::from_ref(&held)).await {
        answered(renewed)?;
    }
    released(store.release(&held).await)?;
    // Without the right to publish no message comes.
    let clock = Clock::system()?;
    let called = clock.timeout(Duration::from_millis(500), hint).await;
    let held = match called.flatten() {
        Some(held) => held,
        None => match store.acquire(&next).await? {
            Acquired::Granted(held) => held,
            other => panic!("it is next: {other:?}"),
        },
    };
    let reader = queued("a", LockMode::Read);
    assert!(matches!(
        store.acquire(&reader).await?,
        Acquired::Busy { .. }
    ));
    let mut reads = vec![store.downgrade(&held).await?];
    if let Acquired::Granted(held) = store.acquire(&reader).await? {
        reads.push(held);
    }
    for renewed in store.renew(&reads).await {
        answered(renewed)?;
    }
    store.inspect(&key("a")).await?;
    store.list("").await?;
    for held in &reads {
        released(store.release(held).await)?;
    }
    store.withdraw(&reader).await?;
    let _nobody_holds = store.revoke(&key("a"), Revoke::Now).await?;
    if let Acquired::Granted(held) = store.acquire(&claim("b")).await? {
        released(store.rest(&held, Duration::from_secs(1)).await)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_user_with_the_rights_that_the_guide_lists_can_do_all_we_need() {
    let server = RedisServer::start();
    let_in(&server, &rights());
    let query = "prefix=app&restart_quarantine=off";
    let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), query)).await;
    use_all(&store.unwrap()).await.unwrap();

    let elsewhere = url(&server, &format!("me:{CANARY}"), "prefix=other");
    let elsewhere = RedisStore::connect(&elsewhere).await.unwrap();
    let error = elsewhere
        .acquire(&claim("a"))
        .await
        .unwrap_err()
        .to_string();
    let commands = rights().into_iter().filter(|right| right.starts_with('+'));
    for command in commands {
        assert!(error.contains(command), "{command} is not in: {error}");
    }
}

#[tokio::test]
async fn a_missing_right_is_denied_and_never_in_doubt() {
    let server = RedisServer::start();
    let rights = rights();
    for (at, command) in rights.iter().enumerate() {
        let Some(name) = command.strip_prefix('+') else {
            continue;
        };
        let others = rights.iter().filter(|right| *right != command).copied();
        let pattern = format!("~p{at}:*");
        let more = [&*pattern, "-@all"].into_iter();
        let_in(&server, &more.chain(others).collect::<Vec<_>>());
        let query = format!("prefix=p{at}&restart_quarantine=off");
        let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), &query)).await;
        let used = match &store {
            Ok(store) => use_all(store).await,
            Err(error) => Err(error.clone()),
        };
        if let Err(error) = used {
            assert_eq!(error.kind(), ErrorKind::Denied, "without {name}: {error}");
        }
    }
}

#[tokio::test]
async fn a_missing_right_leaves_no_lock_without_an_end() {
    let server = RedisServer::start();
    let rights = rights();
    for (at, command) in rights.iter().enumerate() {
        let Some(name) = command.strip_prefix('+') else {
            continue;
        };
        let others = rights.iter().filter(|right| *right != command).copied();
        let pattern = format!("~p{at}:*");
        let more = [&*pattern, "-@all"].into_iter();
        let_in(&server, &more.chain(others).collect::<Vec<_>>());
        let query = format!("prefix=p{at}&restart_quarantine=off");
        let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), &query)).await;
        let Ok(store) = store else {
            continue;
        };
        for mode in [LockMode::Read, LockMode::Exclusive] {
            let lock = format!("p{at}:{mode:?}");
            // Somebody read a moment ago, so the line is looked at.
            let line = format!("{lock}{{{lock}}}:line");
            server.cli(&["SET", &line, "1", "PX", "60000"]);
            let _granted_or_refused = store.acquire(&queued(&format!("{mode:?}"), mode)).await;
            let left = server.cli(&["PTTL", &lock]);
            assert_ne!(left, "-1", "without {name}: {mode:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_right_is_not_taken_for_a_slot_that_moves() {
    let server = RedisServer::start();
    let_in(&server, &["~app:*", WAKE, "+@all"]);
    let query = "prefix=app&restart_quarantine=off";
    let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), query)).await;
    let store = store.unwrap();
    let reads = grant(&store, &queued("a", LockMode::Read)).await;
    server.cli(&["ACL", "SETUSER", "me", "-exists"]);
    let released = store.release(&reads).await;
    let Released::Unknown(error) = released else {
        panic!("{released:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// Only a value that is not ours shows that a lock is lost. An operator who corrects a right ends
/// no hold.
#[tokio::test]
async fn a_lock_that_may_not_be_read_is_not_taken_for_lost() {
    let server = RedisServer::start();
    let_in(&server, &["~app:*", WAKE, "+@all"]);
    let query = "prefix=app&restart_quarantine=off";
    let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), query)).await;
    let store = store.unwrap();
    let held = grant(&store, &claim("a")).await;
    let reads = grant(&store, &queued("b", LockMode::Read)).await;
    for right in ["get", "zscore"] {
        server.cli(&["ACL", "SETUSER", "me", &format!("-{right}")]);
        let renewed = store.renew(&[held.clone(), reads.clone()]).await;
        let is_lost = |one: &Renewed| matches!(one, Renewed::Gone);
        assert!(!renewed.iter().any(is_lost), "{right}: {renewed:?}");
        server.cli(&["ACL", "SETUSER", "me", &format!("+{right}")]);
    }
    let renewed = store.renew(&[held, reads]).await;
    let is_extended = |one: &Renewed| matches!(one, Renewed::Extended(_));
    assert!(renewed.iter().all(is_extended), "{renewed:?}");
}

#[tokio::test]
async fn a_missing_right_is_not_waited_for() {
    let server = RedisServer::start();
    let_in(&server, &["~app:*", WAKE, "+@all"]);
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(900);
    let query = "prefix=app&restart_quarantine=off&max_ttl=900s";
    let url = url(&server, &format!("me:{CANARY}"), query);
    let locks = LockManager::builder_for_url(&url, settings).await;
    let locks = locks.unwrap().build().unwrap();
    let held = locks.lock("held").acquire().await.unwrap();
    server.cli(&["ACL", "SETUSER", "me", "-eval", "-evalsha"]);
    let refused = locks.lock("a").acquire_within(Duration::ZERO).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
    drop(held);
    // Far less than a TTL, and far more than a busy machine needs.
    let clock = Clock::system().unwrap();
    let ended = clock.timeout(Duration::from_secs(300), locks.shutdown());
    ended.await.expect("it waits for a right that nobody gives");
}

#[tokio::test]
async fn a_user_that_may_not_publish_releases_all_the_same() {
    let server = RedisServer::start();
    let rules = ["~app:*", "resetchannels", "+@all"];
    let_in(&server, &rules);
    let query = "prefix=app&restart_quarantine=off";
    let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), query))
        .await
        .unwrap();
    let held = grant(&store, &claim("a")).await;
    let Err(error) = store.subscribe(&claim("a")).await else {
        panic!("it may not subscribe");
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    release(&store, &held).await;
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

#[tokio::test]
async fn a_refused_subscription_costs_no_connection_and_no_other_subscription() {
    let server = RedisServer::start();
    let [first, second] = [claim("a"), claim("b")];
    let channel_of =
        |claim: &Claim| format!("&app:{{leasehold}}:wake:{}", &claim.owner.expose()[24..]);
    let rules = ["~app:*", "resetchannels", &channel_of(&first), "+@all"];
    let_in(&server, &rules);
    let query = "prefix=app&restart_quarantine=off";
    let store = RedisStore::connect(&url(&server, &format!("me:{CANARY}"), query))
        .await
        .unwrap();
    let held = [
        grant(&store, &claim("a")).await,
        grant(&store, &claim("b")).await,
    ];
    let mut hint = store.subscribe(&first).await.unwrap();
    assert!(is_busy(&store, &first).await);
    let connections = || {
        let clients = server.cli(&["CLIENT", "LIST"]);
        let of_user = |line: &&str| line.contains("user=me");
        let name = |line: &str| line.split(' ').next().map(str::to_owned);
        clients
            .lines()
            .filter(of_user)
            .map(name)
            .collect::<Vec<_>>()
    };
    let before = connections();
    for _ in 0..3 {
        let refused = store.subscribe(&second).await;
        let error = refused.expect_err("it may not subscribe");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(futures_util::poll!(&mut hint).is_pending());
    }
    assert_eq!(connections(), before);
    release(&store, &held[0]).await;
    hint.await;

    // Once it may, it can: that it was refused is not kept.
    server.cli(&["ACL", "SETUSER", "me", WAKE]);
    let hint = store.subscribe(&second).await.unwrap();
    assert!(is_busy(&store, &second).await);
    release(&store, &held[1]).await;
    hint.await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_a_mistake_of_the_url() {
    let server = RedisServer::start();
    let url = server.url("").replace("/0?", "/99?");
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("db=99"), "{error}");
}

#[tokio::test]
async fn a_server_that_may_evict_locks_is_refused() {
    let server =
        RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]);
    let error = RedisStore::connect(&server.url("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("maxmemory-policy=volatile-lru"),
        "{error}"
    );
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    RedisStore::connect(&server.url("")).await.unwrap();
}

#[tokio::test]
async fn a_server_without_memory_grants_nothing_and_says_unavailable() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url("restart_quarantine=off"))
        .await
        .unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(server.cli(&["EXISTS", "a"]), "0");
}

#[tokio::test]
async fn a_replica_is_refused_and_a_master_that_became_one_too() {
    let master = RedisServer::start();
    let store = RedisStore::connect(&master.url("restart_quarantine=off"))
        .await
        .unwrap();
    let held = grant(&store, &claim("a")).await;
    let other = RedisServer::start();
    master.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let error = store.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(
        !matches!(renewed[..], [Renewed::Extended(_)]),
        "{renewed:?}"
    );
    let error = RedisStore::connect(&master.url("")).await.unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let mut server = RedisServer::start();
    let store = RedisStore::connect(&server.url("restart_quarantine=off"))
        .await
        .unwrap();
    server.kill();
    let error = RedisStore::connect(&server.url("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!is_busy(&store, &once(claim("a"))).await);
    server.restart();
    // The first requests may still find the dead connection, or come before the next attempt to
    // connect.
    let _held = wait_for(&store, &claim("a")).await;
}

/// A master, and a replica that is up to date.
async fn replicated() -> (RedisServer, RedisServer) {
    let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    while !(master.cli(&["INFO", "replication"])).contains("state=online") {
        crate::server::breathe().await;
    }
    (master, replica)
}

/// What a store promised when it connected it promises for its life.
#[tokio::test]
async fn a_replica_that_is_attached_later_is_warned_of_at_the_next_connection() {
    let log = Reported::default();
    let _guard = log.listen();
    let master = RedisServer::start();
    let url = master.url("restart_quarantine=off");
    let store = RedisStore::connect(&url).await.unwrap();
    assert_eq!(store.capability().fencing, Fencing::Monotonic);
    let port = master.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    while !(master.cli(&["INFO", "replication"])).contains("state=online") {
        breathe().await;
    }
    let warned = || log.with("has replicas now").len();
    assert_eq!(warned(), 0);
    master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let _held = wait_for(&store, &claim("a")).await;
    assert_eq!(warned(), 1);
    let again = RedisStore::connect(&url).await.unwrap();
    assert_eq!(again.capability().fencing, Fencing::None);
}

#[tokio::test]
async fn a_grant_that_is_repeated_waits_for_replicas_too() {
    let (master, replica) = replicated().await;
    let query = "restart_quarantine=off";
    let first = RedisStore::connect(&master.url(query)).await.unwrap();
    replica.pause();
    let changes = || {
        let info = master.cli(&["INFO", "persistence"]);
        let line =
            (info.lines()).find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
            .unwrap()
    };
    let query = "restart_quarantine=off&replicas=1&replica_wait=50ms";
    for ours in [
        claim("a"),
        queued("b", LockMode::Write),
        queued("c", LockMode::Read),
    ] {
        let held = grant(&first, &ours).await;
        // A server of version 7.2 waits only for what the connection that asks has written.
        let before = changes();
        assert_eq!(grant(&first, &ours).await.token, held.token);
        assert!(changes() > before, "{ours:?}");
        let store = RedisStore::connect(&master.url(query)).await.unwrap();
        let error = store.acquire(&ours).await.unwrap_err();
        assert!(error.to_string().contains("confirmed=0"), "{error}");
    }
}

#[tokio::test]
async fn a_caller_in_a_queue_waits_for_replicas_that_do_not_confirm_at_once() {
    for is_fair in [true, false] {
        let (master, replica) = replicated().await;
        let url = master.url("restart_quarantine=off&replicas=1&replica_wait=400ms");
        let locks = LockManager::connect(&url).await.unwrap();
        replica.pause();
        let lock = locks.lock("a");
        let asking = tokio::spawn(async move {
            let wait = Duration::from_secs(30);
            if is_fair {
                let guard = lock.fair().acquire_within(wait).await;
                guard.map(|guard| guard.is_some())
            } else {
                let guard = lock.acquire_within(wait).await;
                guard.map(|guard| guard.is_some())
            }
        });
        let waits = || {
            let info = master.cli(&["INFO", "commandstats"]);
            let reported = (info.lines()).find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
            let calls = reported.and_then(|calls| calls.split(',').next()?.parse::<u64>().ok());
            calls.unwrap_or(0)
        };
        // It is asked more than once, and by the same claim: no grant is taken back in between.
        let (mut holder, mut first) = (String::new(), None);
        loop {
            let seen = master.cli(&["GET", "a"]);
            assert!(holder.is_empty() || seen == holder, "{holder} {seen}");
            holder = seen;
            let asked = waits();
            if !holder.is_empty() && asked >= *first.get_or_insert(asked) + 3 {
                break;
            }
            assert!(!asking.is_finished(), "{:?}", asking.await);
            crate::server::breathe().await;
        }
        replica.resume();
        assert!(asking.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn replicas_that_do_not_confirm_have_an_outcome_of_their_own() {
    let (master, replica) = replicated().await;
    let careless = RedisStore::connect(&master.url("restart_quarantine=off"))
        .await
        .unwrap();
    assert_eq!(careless.capability().fencing, Fencing::None);

    let query = "restart_quarantine=off&replicas=1&replica_wait=10s";
    let store = RedisStore::connect(&master.url(query)).await.unwrap();
    assert_eq!(store.capability().fencing, Fencing::Monotonic);
    master.cli(&["SCRIPT", "FLUSH"]);
    let held = grant(&store, &claim("a")).await;
    let value = replica.cli(&["GET", "a"]);
    assert!(value.starts_with(&held.claim.owner.expose()), "{value}");
    assert!(is_busy(&store, &once(claim("a"))).await);
    release(&store, &held).await;

    replica.pause();
    let ours = once(claim("b"));
    let query = "restart_quarantine=off&replicas=1&replica_wait=50ms";
    let impatient = RedisStore::connect(&master.url(query)).await.unwrap();
    let error = impatient.acquire(&ours).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("replicas=1 confirmed=0"),
        "{error}"
    );
    assert_eq!(master.cli(&["EXISTS", "b"]), "0");
    assert_eq!(
        impatient.acquire(&ours).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    replica.resume();
    let _held = grant(&store, &claim("b")).await;
}

#[tokio::test]
async fn a_renewal_that_no_replica_confirmed_proves_nothing() {
    let (master, replica) = replicated().await;
    let query = "restart_quarantine=off&replicas=1&replica_wait=10s";
    let store = RedisStore::connect(&master.url(query)).await.unwrap();
    let held = [
        grant(&store, &claim("a")).await,
        grant(&store, &claim("b")).await,
    ];
    master.cli(&["SCRIPT", "FLUSH"]);
    let renewed = store.renew(&held).await;
    let all_extended = |renewed: &[Renewed]| {
        let mut renewed = renewed.iter();
        renewed.all(|one| matches!(one, Renewed::Extended(_)))
    };
    assert!(all_extended(&renewed), "{renewed:?}");

    replica.pause();
    let query = "restart_quarantine=off&replicas=1&replica_wait=50ms";
    let impatient = RedisStore::connect(&master.url(query)).await.unwrap();
    let renewed = impatient.renew(&held).await;
    for one in &renewed {
        let Renewed::Unknown(error) = one else {
            panic!("{one:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let reported = error.to_string();
        assert!(reported.contains("replicas=1 confirmed=0"), "{reported}");
    }
    // What is not ours any more is not, whoever has a copy.
    master.cli(&["DEL", "b"]);
    let renewed = impatient.renew(&held).await;
    assert!(
        matches!(renewed[..], [Renewed::Unknown(_), Renewed::Gone]),
        "{renewed:?}"
    );
    replica.resume();
    let renewed = store.renew(&held[..1]).await;
    assert!(all_extended(&renewed), "{renewed:?}");
}

/// A server of something else: it reads what it is sent, answers this, and closes.
fn something_else(answer: &'static [u8]) -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream.write_all(answer);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // A connection that is closed with something unread is reset, and the answer with it.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    port
}

#[tokio::test]
async fn what_does_not_answer_like_redis_is_said_so() {
    // PostgreSQL closes a connection whose first bytes it cannot read; a web server sends a page.
    for answer in [
        &b""[..],
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    ] {
        let port = something_else(answer);
        let error = RedisStore::connect(&format!("redis://127.0.0.1:{port}/0")).await;
        let text = error.unwrap_err().to_string();
        assert!(
            text.starts_with("unavailable: this does not answer like Redis: address="),
            "{text}"
        );
        assert!(text.contains("check the port"), "{text}");
    }
}

#[tokio::test]
async fn a_host_that_is_not_there_and_a_port_where_nobody_listens_are_named_with_their_cause() {
    let error = RedisStore::connect("redis://no-such-host.invalid/0?timeout_millis=60000").await;
    let error = error.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "unavailable: host name not found: address=no-such-host.invalid:6379; check the host"
        ),
        "{text}"
    );
    assert!(std::error::Error::source(&error).is_some(), "{error:?}");

    let port = crate::server::free_port();
    let error = RedisStore::connect(&format!("redis://127.0.0.1:{port}/0")).await;
    let error = error.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("unavailable: no connection to redis: address="),
        "{text}"
    );
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("refused") && !text.contains(&source),
        "{source}"
    );
}

#[tokio::test]
async fn a_list_leaves_out_what_the_user_may_not_read_and_says_so() {
    let server = RedisServer::start();
    let query = "prefix=app&restart_quarantine=off";
    let owner = RedisStore::connect(&server.url(query)).await.unwrap();
    for key in ["seen/1", "hidden/1", "seen/2"] {
        let _held = grant(&owner, &claim(key)).await;
    }
    let_in(&server, &["~app:*seen*", WAKE, "+@all"]);
    let reported = Reported::default();
    let listening = reported.listen();
    let url = url(&server, &format!("me:{CANARY}"), query);
    let limited = RedisStore::connect(&url).await.unwrap();
    let listed = limited.list("").await.unwrap();
    let keys: Vec<&str> = listed.iter().map(|info| info.key.as_str()).collect();
    assert_eq!(keys, ["seen/1", "seen/2"]);
    let warned = reported.with("a list leaves out 1 keys that this user may not read");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!(owner.list("").await.unwrap().len(), 3);
    drop(listening);
}
