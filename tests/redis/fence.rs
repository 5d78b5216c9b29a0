//! The fence in a real server: a batch is applied under the newest token, all of it and once, or
//! not at all.

use std::time::Duration;

use crate::claims::{claim_for, grant, is_busy, key};
use crate::proxy::{Fate, Proxy};
use crate::server::canary::CANARY;
use crate::server::{RedisServer, breathe, is_of_version_6};
use crate::stopped::{Stopped, in_the_process, report, stop_at};
use leasehold::clock::Clock;
use leasehold::fence::{AlreadyApplied, Fence};
use leasehold::redis::{RedisBatch, RedisFence, RedisStore, Written};
use leasehold::run::{CommitProof, TxnId};
use leasehold::testing::TestHold;
use leasehold::{Cause, Ended, ErrorKind, Executor, FencingToken, LockManager, RunError, Settings};

const QUERY: &str = "prefix=app";
/// For what is not answered.
const IMPATIENT: &str = "prefix=app&timeout_millis=1000";
const HOLD: Duration = Duration::from_secs(30);

pub(crate) async fn fence(server: &RedisServer) -> RedisFence {
    RedisFence::connect(&server.url(QUERY)).await.unwrap()
}

/// A fence that soon gives up waiting for an answer. On a busy machine it may give up its first
/// connection.
pub(crate) async fn impatient(url: impl Fn(&str) -> String) -> RedisFence {
    loop {
        match RedisFence::connect(&url(IMPATIENT)).await {
            Ok(fence) => return fence,
            Err(_) => breathe().await,
        }
    }
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub(crate) fn hold(number: u64) -> TestHold {
    let clock = Clock::system().unwrap();
    TestHold::new(clock, &Settings::default(), key("a"), token(number), HOLD)
}

pub(crate) fn name() -> TxnId {
    let named = hold(1).executor().guarded(|tx| Ok(tx.txn_id()?));
    named.unwrap().value
}

async fn write(fence: &RedisFence, number: u64, batch: &RedisBatch) -> Written {
    fence
        .write(&key("a"), token(number), name(), "step", batch)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_smaller_token_is_fenced_and_nothing_is_applied() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let batch = |value: &str| {
        RedisBatch::new()
            .set("balance", value)
            .increment_by("writes", 1)
    };
    assert_eq!(write(&fence, 5, &batch("5")).await, Written::Applied);
    assert_eq!(
        write(&fence, 4, &batch("4")).await,
        Written::Fenced { seen: token(5) }
    );
    assert_eq!(server.cli(&["MGET", "balance", "writes"]), "5\n1");
    assert_eq!(write(&fence, 5, &batch("5b")).await, Written::Applied);
    assert_eq!(write(&fence, 6, &batch("6")).await, Written::Applied);
    assert_eq!(server.cli(&["MGET", "balance", "writes"]), "6\n3");
}

#[tokio::test]
async fn what_creates_a_key_is_applied_once_whoever_repeats_it() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let day = std::time::Duration::from_secs(86_400);
    let pay = RedisBatch::new()
        .create("pay@1", "", day)
        .increment_by("paid", 10);
    assert_eq!(write(&fence, 1, &pay).await, Written::Applied);
    for number in [1, 2] {
        let again = write(&fence, number, &pay).await;
        assert_eq!(again, Written::AlreadyApplied);
    }
    // Also where the program has used the name for a value of another type.
    server.cli(&["RPUSH", "list", "1"]);
    let list = RedisBatch::new().create("list", "", day);
    assert_eq!(write(&fence, 2, &list).await, Written::AlreadyApplied);
    assert_eq!(server.cli(&["GET", "paid"]), "10");
    assert!(server.cli(&["PTTL", "pay@1"]).parse::<u64>().unwrap() > 86_000_000);
    // Of two in one batch neither is applied.
    let twice = RedisBatch::new()
        .create("pay@2", "", day)
        .create("pay@2", "", day);
    let twice = fence
        .write(&key("a"), token(2), name(), "step", &twice)
        .await;
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(server.cli(&["EXISTS", "pay@2"]), "0");
    // The same run, sent again, is answered as before.
    let next = RedisBatch::new().create("pay@3", "", day);
    let run = name();
    for _ in 0..2 {
        let sent = fence.write(&key("a"), token(2), run, "step", &next).await;
        assert_eq!(sent.unwrap(), Written::Applied);
    }
}

#[tokio::test]
async fn a_raised_fence_shuts_out_before_the_first_write() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let batch = RedisBatch::new().set("balance", "1");
    assert_eq!(write(&fence, 1, &batch).await, Written::Applied);
    fence.raise(&key("a"), token(2)).await.unwrap();
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(
        write(&fence, 1, &batch).await,
        Written::Fenced { seen: token(2) }
    );
    let error = fence.raise(&key("a"), token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Ended::Gone), "{error}");
    // Another key has a fence of its own.
    fence.raise(&key("b"), token(1)).await.unwrap();
}

#[tokio::test]
async fn a_token_that_is_absurdly_far_ahead_does_not_shut_out_the_honest_ones() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let error = fence.raise(&key("a"), FencingToken::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let batch = RedisBatch::new().set("balance", "1");
    let written = fence
        .write(&key("a"), FencingToken::MAX, name(), "step", &batch)
        .await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(server.cli(&["KEYS", "*"]), "");
    assert_eq!(write(&fence, 1, &batch).await, Written::Applied);
}

#[tokio::test]
async fn a_fence_key_that_is_not_ours_is_corrupt_and_untouched() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    for foreign in ["nonsense", "99999999999999999999", "-1"] {
        server.cli(&["SET", "app:a{app:a}:raised", foreign]);
        let batch = RedisBatch::new().set("balance", "1");
        let written = fence
            .write(&key("a"), token(1), name(), "step", &batch)
            .await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            fence.raise(&key("a"), token(1)).await.unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        assert_eq!(server.cli(&["GET", "app:a{app:a}:raised"]), foreign);
    }
    assert_eq!(server.cli(&["EXISTS", "balance"]), "0");
}

#[tokio::test]
async fn a_batch_that_the_data_do_not_allow_changes_nothing() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    server.cli(&["RPUSH", "list", "x"]);
    server.cli(&["SET", "text", "12x"]);
    server.cli(&["SET", "large", "9007199254740991"]);
    server.cli(&["HSET", "hash", "text", "x", "number", "1"]);
    let new = RedisBatch::new;
    let refused = [
        new().increment_by("list", 1),
        new().increment_by("text", 1),
        new().increment_by("large", 1),
        new().increment_by("absent", i64::MAX),
        new().hash_set("list", "f", "v"),
        new().hash_increment_by("hash", "text", 1),
        new().hash_set("text", "f", "v"),
        // What the commands before it have made of the key counts.
        new().set("absent", "text").increment_by("absent", 1),
        new().set("list", "1").hash_set("list", "f", "v"),
        new()
            .hash_set("absent", "f", "x")
            .hash_increment_by("absent", "f", 1),
        new().hash_set("absent", "f", "1").increment_by("absent", 1),
        new()
            .increment_by("absent", (1 << 53) - 1)
            .increment_by("absent", 1),
    ];
    for batch in refused {
        let shown = format!("{batch:?}");
        let whole = new()
            .set("first", "1")
            .hash_set("second", "f", "v")
            .and(batch);
        let written = fence
            .write(&key("a"), token(1), name(), "step", &whole)
            .await;
        let error = written.expect_err(&shown);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{shown}: {error}");
        assert_eq!(
            server.cli(&["EXISTS", "first", "second", "absent", "app:a{app:a}:raised"]),
            "0",
            "{shown}"
        );
    }
    assert_eq!(server.cli(&["GET", "text"]), "12x");
    assert_eq!(server.cli(&["TYPE", "list"]), "list");
}

#[tokio::test]
async fn a_batch_that_later_commands_make_possible_is_applied() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    server.cli(&["RPUSH", "was-list", "x"]);
    server.cli(&["HSET", "hash", "gone", "x", "n", "41"]);
    let batch = RedisBatch::new()
        .delete("was-list")
        .increment_by("was-list", 7)
        .set("n", "-3")
        .increment_by("n", -4)
        .hash_set("hash", "gone", "0")
        .hash_increment_by("hash", "gone", 5)
        .hash_increment_by("hash", "n", 1);
    assert_eq!(write(&fence, 1, &batch).await, Written::Applied);
    assert_eq!(server.cli(&["MGET", "was-list", "n"]), "7\n-7");
    assert_eq!(server.cli(&["HMGET", "hash", "gone", "n"]), "5\n42");
}

#[tokio::test]
async fn a_user_who_may_not_do_one_of_the_commands_does_none() {
    let server = RedisServer::start();
    let rules = ["~app:*", "~mine*", "+@all", "-hincrby", "%R~theirs*"];
    let password = format!(">{CANARY}");
    let user = [&["ACL", "SETUSER", "me", "on", &password][..], &rules].concat();
    if server.cli(&user) != "OK" {
        // A user of version 6 may read a key and write it, or neither.
        assert_eq!(server.cli(&user[..user.len() - 1]), "OK");
    }
    let url = server
        .url(QUERY)
        .replace("127.0.0.1", &format!("me:{CANARY}@127.0.0.1"));
    let fence = RedisFence::connect(&url).await.unwrap();
    let first = || RedisBatch::new().set("mine", "1");
    let another_key = (first().set("theirs", "1"), ErrorKind::Denied);
    let another_command = (
        first().hash_increment_by("mine-too", "f", 1),
        ErrorKind::Invalid,
    );
    // Nobody can ask a server of version 6 beforehand.
    let checked = 2 - usize::from(is_of_version_6());
    for (batch, kind) in [another_key, another_command].into_iter().take(checked) {
        let written = fence
            .write(&key("a"), token(1), name(), "step", &batch)
            .await;
        assert_eq!(written.unwrap_err().kind(), kind, "{batch:?}");
        assert_eq!(server.cli(&["KEYS", "*"]), "");
    }
}

#[tokio::test]
async fn a_batch_that_names_a_key_of_the_lock_or_the_fence_is_refused() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    for name_of_ours in ["app:a", "app:a{app:a}:raised", "app:{leasehold}:token"] {
        let batch = RedisBatch::new().set("data", "1").delete(name_of_ours);
        let written = fence
            .write(&key("a"), token(5), name(), "step", &batch)
            .await;
        let error = written.expect_err(name_of_ours);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(server.cli(&["KEYS", "*"]), "", "{name_of_ours}");
    }
    let beside = RedisBatch::new().set("{app:a}:balance", "1");
    assert_eq!(write(&fence, 5, &beside).await, Written::Applied);
}

/// The script itself.
const APPLY: &str = concat!(
    include_str!("../../src/redis/fence/scripts/fence.lua"),
    include_str!("../../src/redis/fence/scripts/names.lua"),
    include_str!("../../src/redis/fence/scripts/apply.lua")
);

/// What comes before the commands of a batch.
const FIXED: [&str; 7] = ["1000000", "86400000", "100000", "run:part", "1", "1", "1"];

#[test]
fn a_number_that_servers_read_in_two_ways_is_refused_before_the_first_write() {
    // By the script itself: RedisBatch refuses these numbers first.
    let server = RedisServer::start();
    let send = |last: &[&str]| {
        let keys = ["names", "order", "fence", "first", "k"];
        let first = ["any", "3", "SET", "first", "1"];
        let eval = ["EVAL", APPLY, "5"];
        server.cli(&[&eval[..], &keys, &FIXED, &first, last].concat())
    };
    for step in ["+1", "01", "-0", "1.0"] {
        let answer = send(&["string", "3", "INCRBY", "k", step]);
        assert!(answer.starts_with("invalid\n1\n"), "{step}: {answer}");
    }
    assert_eq!(server.cli(&["KEYS", "*"]), "");
}

#[test]
fn a_batch_that_broke_half_way_is_never_taken_for_applied() {
    // By the script itself: RedisBatch refuses what is known to break.
    let server = RedisServer::start();
    let send = |last: &str| {
        let keys = ["names", "order", "fence", "count", "scores", "last"];
        let count = ["string", "3", "INCRBY", "count", "1"];
        let breaks = ["any", "3", "EXPIRE", "scores", "soon"];
        let last = ["any", "3", "SET", "last", last];
        let eval = ["EVAL", APPLY, "6"];
        server.cli(&[&eval[..], &keys, &FIXED, &count, &breaks, &last].concat())
    };
    let reported = send("x");
    assert!(reported.starts_with("broken\n1\n"), "{reported}");
    assert_eq!(send("x"), reported);
    assert_eq!(send("another"), "reused");
    assert_eq!(server.cli(&["GET", "count"]), "1");
    assert_eq!(server.cli(&["EXISTS", "scores", "last"]), "0");
    assert_ne!(server.cli(&["PTTL", "names"]), "-1");
}

#[tokio::test]
async fn batches_that_differ_only_in_where_their_words_end_are_two() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let name = name();
    let write = async |field: &str, value: &str| {
        let batch = RedisBatch::new().hash_set("hash", field, value);
        let part = "step";
        fence.write(&key("a"), token(1), name, part, &batch).await
    };
    assert_eq!(write("a b", "c").await.unwrap(), Written::Applied);
    let error = write("a", "b c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(server.cli(&["HGETALL", "hash"]), "a b\nc");
}

#[tokio::test]
async fn a_server_without_memory_applies_nothing() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let batch = RedisBatch::new().set("first", "1");
    let error = fence
        .write(&key("a"), token(1), name(), "step", &batch)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(server.cli(&["KEYS", "*"]), "");
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_applied_once_and_answered_truthfully() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let fence = impatient(|query| proxy.url(query)).await;
    let batch = RedisBatch::new().increment_by("count", 1);
    assert_eq!(write(&fence, 1, &batch).await, Written::Applied);
    // The server applies it; its answer never arrives; the resend goes over a new connection.
    let before = proxy.wires();
    for wire in &before {
        wire.set(Fate {
            swallow_down: true,
            ..Fate::KIND
        });
    }
    assert_eq!(write(&fence, 1, &batch).await, Written::Applied);
    assert!(proxy.wires().len() > before.len());
    assert_eq!(server.cli(&["GET", "count"]), "2");

    // It was applied although the fence has been raised since.
    let name = name();
    let ours = fence
        .write(&key("a"), token(1), name, "step", &batch)
        .await
        .unwrap();
    fence.raise(&key("a"), token(2)).await.unwrap();
    let again = fence
        .write(&key("a"), token(1), name, "step", &batch)
        .await
        .unwrap();
    assert_eq!((ours, again), (Written::Applied, Written::Applied));
    assert_eq!(server.cli(&["GET", "count"]), "3");

    // Another batch under the same name is a mistake, and not taken for the first.
    let other = RedisBatch::new().increment_by("count", 2);
    let error = fence
        .write(&key("a"), token(2), name, "step", &other)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_batch_that_was_never_applied_is_fenced_although_it_was_sent_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let ours = impatient(|query| proxy.url(query)).await;
    let batch = RedisBatch::new().increment_by("count", 1);
    assert_eq!(write(&ours, 1, &batch).await, Written::Applied);
    let held_back = proxy.wires().pop().unwrap();
    held_back.set(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    fence(&server)
        .await
        .raise(&key("a"), token(2))
        .await
        .unwrap();
    assert_eq!(
        write(&ours, 1, &batch).await,
        Written::Fenced { seen: token(2) }
    );
    // The copy that was held back arrives now, and meets the same fence.
    let calls = || {
        server
            .cli(&["INFO", "commandstats"])
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha"))
            .map(str::to_owned)
    };
    let before = calls();
    held_back.set(Fate::KIND);
    while calls() == before {
        breathe().await;
    }
    assert_eq!(server.cli(&["GET", "count"]), "1");
}

#[tokio::test]
async fn a_server_that_never_answers_leaves_it_in_doubt() {
    let server = RedisServer::start();
    let fence = impatient(|query| server.url(query)).await;
    let batch = RedisBatch::new().increment_by("count", 1);
    assert_eq!(write(&fence, 1, &batch).await, Written::Applied);
    server.pause();
    let name = name();
    let error = fence
        .write(&key("a"), token(1), name, "step", &batch)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    server.resume();
    let again = loop {
        let again = fence.write(&key("a"), token(1), name, "step", &batch).await;
        match again {
            // The next attempt to connect is not due yet, or the machine is busy.
            Err(error) if [ErrorKind::Unavailable, ErrorKind::InDoubt].contains(&error.kind()) => {
                breathe().await;
            }
            written => break written.unwrap(),
        }
    };
    assert_eq!(again, Written::Applied);
    assert_eq!(
        server.cli(&["GET", "count"]),
        "2",
        "applied once, however often it was sent"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_proves_that_nothing_was_applied() {
    let mut server = RedisServer::start();
    let fence = fence(&server).await;
    server.kill();
    while fence.raise(&key("a"), token(1)).await.unwrap_err().kind() == ErrorKind::InDoubt {
        breathe().await;
    }
    let batch = RedisBatch::new().increment_by("count", 1);
    let error = fence
        .write(&key("a"), token(1), name(), "step", &batch)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_run_whose_effect_was_there_before_reports_that_as_its_cause() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let hour = Duration::from_secs(3_600);
    let pay = || {
        RedisBatch::new()
            .create("pay@1", "", hour)
            .increment_by("paid", 10)
    };
    let executor = hold(1).executor();
    apply(&executor, &fence, pay()).await.unwrap();
    let again = apply(&executor, &fence, pay()).await.unwrap_err();
    let Some(Cause::NotApplied(cause)) = again.cause() else {
        panic!("{again:?}");
    };
    let is_known = cause.downcast_ref::<AlreadyApplied>().is_some();
    assert!(is_known, "{again:?}");
    // What the data do not allow is something else.
    server.cli(&["SET", "paid", "no number"]);
    let pay = RedisBatch::new()
        .create("pay@2", "", hour)
        .increment_by("paid", 10);
    let refused = apply(&executor, &fence, pay).await.unwrap_err();
    let Some(Cause::NotApplied(cause)) = refused.cause() else {
        panic!("{refused:?}");
    };
    assert!(cause.downcast_ref::<AlreadyApplied>().is_none(), "{cause}");
}

async fn commit(
    executor: &Executor,
    fence: &RedisFence,
    value: &str,
) -> Result<CommitProof, RunError<()>> {
    apply(executor, fence, RedisBatch::new().set("balance", value)).await
}

async fn apply(
    executor: &Executor,
    fence: &RedisFence,
    batch: RedisBatch,
) -> Result<CommitProof, RunError<()>> {
    let fence = fence.clone();
    let done = executor.guarded_async(async |tx| {
        tx.commit_with(move |permit| fence.apply(permit, batch));
        Ok(())
    });
    done.await.map(|done| done.proof)
}

#[tokio::test]
async fn a_commit_that_the_fence_accepted_is_committed_and_fenced() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let (older, newer) = (hold(1), hold(2));
    assert_eq!(
        commit(&older.executor(), &fence, "older").await.unwrap(),
        CommitProof::Fenced
    );
    assert_eq!(
        commit(&newer.executor(), &fence, "newer").await.unwrap(),
        CommitProof::Fenced
    );
    let refused = commit(&older.executor(), &fence, "too late")
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == token(2)),
        "{refused:?}"
    );
    assert_eq!(server.cli(&["GET", "balance"]), "newer");
}

/// Not a test, except for the one that starts it: the process that the next test stops in its
/// commit.
#[test]
fn zombie() {
    in_the_process(async |url| {
        let store = RedisStore::connect(&url).await.unwrap();
        let fence = RedisFence::connect(&url).await.unwrap();
        // Its own clock does not end it: what is left when the process goes on is the time that the
        // commit has to be answered in.
        let clock = Clock::system().unwrap();
        let held = grant(&store, &claim_for("a", Duration::from_secs(4))).await;
        let hold = TestHold::new(clock, &Settings::default(), key("a"), held.token, HOLD);
        report(commit_at_the_place(&hold.executor(), fence).await);
    });
}

/// Commits, and is stopped where the lease was found live, and nothing is sent yet.
async fn commit_at_the_place(
    executor: &Executor,
    fence: RedisFence,
) -> Result<CommitProof, RunError<()>> {
    let done = executor.guarded_async(async |tx| {
        tx.commit_with(move |permit| {
            stop_at("commit");
            fence.apply(permit, RedisBatch::new().set("balance", "zombie"))
        });
        Ok(())
    });
    done.await.map(|done| done.proof)
}

#[tokio::test]
async fn a_zombie_is_refused_by_the_fence_and_its_run_says_so() {
    let server = RedisServer::start();
    let url = server.url("prefix=app&restart_quarantine=off");
    let zombie = Stopped::start("fence::zombie", "commit", &url);
    let store = RedisStore::connect(&url).await.unwrap();
    let fence = RedisFence::connect(&url).await.unwrap();
    let ours = claim_for("a", HOLD);
    while is_busy(&store, &ours).await {
        breathe().await;
    }
    let held = grant(&store, &ours).await;
    fence.raise(&key("a"), held.token).await.unwrap();
    // Raised, and nothing written under it yet: the zombie comes between the first read and the
    // first write.
    assert_eq!(zombie.finish(), format!("ended fenced {}", held.token));
    assert_eq!(server.cli(&["EXISTS", "balance"]), "0");
}

/// Not a test, except for the one that starts it: the process that the next test stops, under two
/// locks.
#[test]
fn zombie_under_two_locks() {
    in_the_process(async |url| {
        let fence = RedisFence::connect(&url).await.unwrap();
        let locks = LockManager::connect(&url).await.unwrap();
        let both = locks.lock_all(["row/a", "row/b"]).fence(fence.clone());
        let guard = both.ttl(HOLD).acquire().await.unwrap();
        report(commit_at_the_place(&guard.executor(), fence).await);
    });
}

#[tokio::test]
async fn a_process_that_holds_two_locks_is_fenced_by_the_next_holder_of_the_second() {
    let server = RedisServer::start();
    let url = server.url("prefix=app&restart_quarantine=off");
    let zombie = Stopped::start("fence::zombie_under_two_locks", "commit", &url);
    let fence = RedisFence::connect(&url).await.unwrap();
    let locks = LockManager::connect(&url).await.unwrap();
    // Its time is over in the server; by its own clock something is left, in which the commit has
    // to be answered.
    assert_eq!(server.cli(&["PEXPIRE", "app:row/b", "1"]), "1");
    let lock = locks.lock("row/b").fence(fence.clone());
    let guard = lock.acquire_within(HOLD).await.unwrap().unwrap();
    assert_eq!(
        commit(&guard.executor(), &fence, "ours").await.unwrap(),
        CommitProof::Fenced
    );
    assert_eq!(zombie.finish(), format!("ended fenced {}", guard.token()));
    assert_eq!(server.cli(&["GET", "balance"]), "ours");
}
