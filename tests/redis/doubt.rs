//! Commits that are not answered, and what becomes of the doubt.

use std::sync::Arc;
use std::time::Duration;

use crate::claims::key;
use crate::fence::{fence, impatient, token};
use crate::proxy::{Fate, Proxy, Wire};
use crate::server::{RedisServer, until};
use crate::stopped::{Stopped, in_the_process, report, stop_at};
use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve};
use leasehold::redis::{RedisBatch, RedisFence, Written};
use leasehold::run::{CommitProof, Doubt, HeldKey, Resolution, TxnId};
use leasehold::testing::TestHold;
use leasehold::{ErrorKind, LockManager, RunError, Settings};

/// For a run that nobody answers, and which is waited for.
const SHORT: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(60);

const HELD: Fate = Fate {
    hold_up: true,
    ..Fate::KIND
};
const UNANSWERED: Fate = Fate {
    swallow_down: true,
    ..Fate::KIND
};

fn hold(ttl: Duration) -> TestHold {
    let clock = Clock::system().unwrap();
    TestHold::new(clock, &Settings::default(), key("a"), token(1), ttl)
}

/// Adds one, while every connection suffers a fate.
async fn add_one(
    fence: &RedisFence,
    proxy: &Arc<Proxy>,
    fate: Fate,
) -> Result<CommitProof, RunError<()>> {
    let (fence, proxy) = (fence.clone(), Arc::clone(proxy));
    let hold = hold(if fate == Fate::KIND { LONG } else { SHORT });
    let executor = hold.executor();
    let run = executor.guarded_async(async move |tx| {
        tx.commit_with(move |permit| {
            proxy.all(fate);
            fence.apply(permit, RedisBatch::new().increment_by("count", 1))
        });
        Ok(())
    });
    run.await.map(|done| done.proof)
}

/// A fence whose connections go through a proxy, and which has been used.
async fn behind(server: &RedisServer) -> (RedisFence, Arc<Proxy>) {
    let proxy = Arc::new(Proxy::before(server.port()));
    let fence = impatient(|query| proxy.url(query)).await;
    let done = add_one(&fence, &proxy, Fate::KIND).await;
    assert_eq!(done.unwrap(), CommitProof::Fenced);
    assert_eq!(server.cli(&["GET", "count"]), "1");
    (fence, proxy)
}

fn scripts_run(server: &RedisServer) -> Option<String> {
    let stats = server.cli(&["INFO", "commandstats"]);
    let mut lines = stats.lines();
    lines
        .find(|line| line.starts_with("cmdstat_evalsha"))
        .map(str::to_owned)
}

/// Lets what was held back arrive, and waits until the server has run it.
async fn deliver(server: &RedisServer, wires: &[Arc<Wire>]) {
    let before = scripts_run(server);
    for wire in wires {
        wire.set(Fate::KIND);
    }
    until("the server has run what was held back", async || {
        scripts_run(server) != before
    })
    .await;
}

#[tokio::test]
async fn a_commit_that_is_held_back_is_in_doubt_until_it_is_resolved_and_refused_when_it_arrives() {
    let server = RedisServer::start();
    let (ours, proxy) = behind(&server).await;
    let in_doubt = add_one(&ours, &proxy, HELD).await.unwrap_err();
    assert!(matches!(in_doubt, RunError::InDoubt { .. }), "{in_doubt:?}");
    let doubt = in_doubt.doubt().unwrap();
    let other = fence(&server).await;
    assert_eq!(other.resolve(&doubt).await.unwrap(), Resolution::NotApplied);
    deliver(&server, &proxy.wires()).await;
    assert_eq!(other.resolve(&doubt).await.unwrap(), Resolution::NotApplied);
    assert_eq!(server.cli(&["GET", "count"]), "1");
    proxy.next(Fate::KIND);
    // Nobody has raised the fence: the name alone refuses a copy that comes later still.
    let batch = RedisBatch::new().increment_by("count", 1);
    let key = key("a");
    let copy = ours.write(&key, token(1), doubt.txn_id, "commit", &batch);
    assert_eq!(copy.await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(server.cli(&["GET", "count"]), "1");
}

#[tokio::test]
async fn a_commit_that_was_applied_without_an_answer_is_resolved_as_applied() {
    let server = RedisServer::start();
    let (ours, proxy) = behind(&server).await;
    let in_doubt = add_one(&ours, &proxy, UNANSWERED).await.unwrap_err();
    let doubt = in_doubt.doubt().unwrap();
    let other = fence(&server).await;
    for _ in 0..2 {
        assert_eq!(other.resolve(&doubt).await.unwrap(), Resolution::Applied);
    }
    // A newer holder does not change what happened.
    other.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(other.resolve(&doubt).await.unwrap(), Resolution::Applied);
    assert_eq!(server.cli(&["GET", "count"]), "2");
}

#[tokio::test]
async fn a_doubt_that_ends_within_the_run_has_a_true_outcome() {
    let server = RedisServer::start();
    let (ours, proxy) = behind(&server).await;
    let mut expected = 1;
    for (fate, wait) in [(HELD, 2), (HELD, 6), (UNANSWERED, 2), (UNANSWERED, 6)] {
        let healing = Arc::clone(&proxy);
        let heal = async {
            // The commit is sent again, or resolved, over a new connection.
            for _ in 0..wait {
                crate::server::breathe().await;
            }
            healing.next(Fate::KIND);
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = add_one(&ours, &proxy, fate) => outcome,
            () = heal => unreachable!("it never ends"),
        };
        match outcome {
            Ok(proof) => {
                assert_eq!(proof, CommitProof::Fenced);
                expected += 1;
            }
            Err(RunError::RolledBack { .. }) => {}
            Err(error) => {
                let doubt = error.doubt().unwrap_or_else(|| panic!("{error:?}"));
                let resolution = fence(&server).await.resolve(&doubt).await.unwrap();
                expected += i32::from(resolution == Resolution::Applied);
            }
        }
        proxy.all(Fate::KIND);
        assert_eq!(server.cli(&["GET", "count"]), expected.to_string());
    }
}

/// The data may allow it when the first copy arrives.
#[tokio::test]
async fn a_refusal_of_the_second_copy_does_not_say_that_the_first_is_never_applied() {
    let server = RedisServer::start();
    let (ours, proxy) = behind(&server).await;
    // What was sent is kept back; what is sent again takes another connection.
    let hold_back = || {
        server.cli(&["SET", "count", "no number"]);
        proxy.wires().iter().for_each(|wire| wire.set(HELD));
    };
    let arrives = async || {
        server.cli(&["SET", "count", "1"]);
        deliver(&server, &proxy.wires()).await;
        server.cli(&["GET", "count"]) == "2"
    };
    let batch = RedisBatch::new().increment_by("count", 1);
    let hold = hold(LONG);
    let executor = hold.executor();
    hold_back();
    let sent = (ours.clone(), batch.clone());
    let run = executor.commit(move |permit| sent.0.apply(permit, sent.1));
    let error = run.await.unwrap_err();
    let is_applied = arrives().await;
    assert!(
        error.was_applied().is_none_or(|was| was == is_applied),
        "{error:?}, applied: {is_applied}"
    );
    if let Some(doubt) = error.doubt() {
        let resolution = fence(&server).await.resolve(&doubt).await.unwrap();
        assert_eq!(resolution == Resolution::Applied, is_applied);
    }

    let named = executor.guarded(|tx| Ok(tx.txn_id()?)).unwrap().value;
    hold_back();
    let step = ours.write(&key("a"), token(1), named, "step", &batch).await;
    assert!(arrives().await);
    assert_eq!(step.unwrap_err().kind(), ErrorKind::InDoubt);
    // Sent again under its name, it says what became of it.
    let again = ours.write(&key("a"), token(1), named, "step", &batch).await;
    assert_eq!(again.unwrap(), Written::Applied);
    assert_eq!(server.cli(&["GET", "count"]), "2");
}

#[tokio::test]
async fn a_commit_under_two_locks_is_resolved_whatever_their_order() {
    let server = RedisServer::start();
    let (ours, proxy) = behind(&server).await;
    let locks = LockManager::connect(&server.url("prefix=app&restart_quarantine=off"))
        .await
        .unwrap();
    let both = locks.lock_all(["row/b", "row/a"]).ttl(SHORT);
    let guard = both.acquire().await.unwrap();
    let executor = guard.executor();
    for (fate, expected) in [
        (HELD, Resolution::NotApplied),
        (UNANSWERED, Resolution::Applied),
    ] {
        proxy.all(Fate::KIND);
        // The connection of the round before is gone.
        until("the fence has a new connection", async || {
            ours.raise(&key("a"), token(1)).await.is_ok()
        })
        .await;
        let (ours, proxy) = (ours.clone(), Arc::clone(&proxy));
        // The lease is renewed, so the executor waits longer than the fence asks.
        let run = executor.guarded_async(async move |tx| {
            tx.commit_with(move |permit| {
                proxy.all(fate);
                ours.apply(permit, RedisBatch::new().increment_by("count", 1))
            });
            Ok(())
        });
        let doubt = run.await.unwrap_err().doubt().unwrap();
        assert_eq!(doubt.locks.len(), 2);
        let backwards = Doubt::new(doubt.locks.iter().rev().cloned().collect(), doubt.txn_id);
        let other = fence(&server).await;
        assert_eq!(other.resolve(&backwards).await.unwrap(), expected);
        assert_eq!(other.resolve(&doubt).await.unwrap(), expected);
    }
    drop(guard);
}

/// With any other locks the record would be looked for, and the name be taken, beside the wrong
/// key.
#[tokio::test]
async fn a_doubt_without_all_locks_of_its_run_is_refused() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let locks = LockManager::connect(&server.url("prefix=app&restart_quarantine=off"))
        .await
        .unwrap();
    let both = locks.lock_all(["row/a", "row/b"]);
    let guard = both.acquire().await.unwrap();
    let (tell, told) = tokio::sync::oneshot::channel();
    let ours = fence.clone();
    let executor = guard.executor();
    let run = executor.commit(move |permit| {
        let doubt = Doubt::new(permit.locks().to_vec(), permit.txn_id);
        tell.send(doubt).unwrap();
        ours.apply(permit, RedisBatch::new().increment_by("count", 1))
    });
    let _ = run.await.unwrap();
    let doubt = told.await.unwrap();
    let before = server.cli(&["DBSIZE"]);
    let mut other = doubt.locks.clone();
    other[1].token = token(1);
    for some in [&doubt.locks[1..], &doubt.locks[..1], &other, &[]] {
        let some = Doubt::new(some.to_vec(), doubt.txn_id);
        let error = fence.resolve(&some).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    // No lock of several names the commit alone, either.
    let lock = &doubt.locks[1];
    let batch = RedisBatch::new().increment_by("count", 1);
    let alone = fence.write(&lock.key, lock.token, doubt.txn_id, "commit", &batch);
    assert_eq!(alone.await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(server.cli(&["DBSIZE"]), before);
    assert_eq!(server.cli(&["GET", "count"]), "1");
    assert_eq!(fence.resolve(&doubt).await.unwrap(), Resolution::Applied);
}

/// In milliseconds.
const DAY: u128 = 24 * 60 * 60 * 1_000;

fn millis(server: &RedisServer) -> u128 {
    let time = server.cli(&["TIME"]);
    time.lines().next().unwrap().parse::<u128>().unwrap() * 1_000
}

/// Of a run under the lock `a` with the token 1, as if it had begun then.
fn doubt_of(made_at: u128) -> Doubt {
    let named = hold(LONG).executor().guarded(|tx| Ok(tx.txn_id()?));
    let named = u128::from_be_bytes(*named.unwrap().value.as_bytes());
    let txn_id: TxnId = format!("{made_at:012x}{:020x}", named & ((1 << 80) - 1))
        .parse()
        .unwrap();
    let lock = HeldKey {
        key: key("a"),
        token: token(1),
    };
    Doubt::new(vec![lock], txn_id)
}

async fn commit_late(fence: &RedisFence, doubt: &Doubt) -> Result<Written, ErrorKind> {
    let batch = RedisBatch::new().increment_by("data", 1);
    let lock = &doubt.locks[0];
    let commit = fence.write(&lock.key, lock.token, doubt.txn_id, "commit", &batch);
    commit.await.map_err(|error| error.kind())
}

async fn resolve(fence: &RedisFence, doubt: &Doubt) -> Result<Resolution, ErrorKind> {
    fence.resolve(doubt).await.map_err(|error| error.kind())
}

#[tokio::test]
async fn of_a_name_that_may_be_forgotten_or_that_is_not_from_now_nothing_is_said() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let now = millis(&server);
    for made_at in [0, now + DAY + 60_000] {
        let doubt = doubt_of(made_at);
        assert_eq!(resolve(&fence, &doubt).await, Err(ErrorKind::Invalid));
        assert_eq!(commit_late(&fence, &doubt).await, Err(ErrorKind::Invalid));
    }
    assert_eq!(server.cli(&["KEYS", "*"]), "");
    // Old names are kept until a later commit.
    let old = [now - 9 * DAY, now - 8 * DAY].map(doubt_of);
    for doubt in &old {
        assert_eq!(commit_late(&fence, doubt).await, Ok(Written::Applied));
    }
    let new = doubt_of(now);
    assert_eq!(resolve(&fence, &old[1]).await, Ok(Resolution::Applied));
    assert_eq!(commit_late(&fence, &new).await, Ok(Written::Applied));
    for doubt in [&doubt_of(now - 9 * DAY - 1), &old[0], &old[1]] {
        assert_eq!(resolve(&fence, doubt).await, Err(ErrorKind::Invalid));
        assert_eq!(commit_late(&fence, doubt).await, Err(ErrorKind::Invalid));
    }
    assert_eq!(resolve(&fence, &new).await, Ok(Resolution::Applied));
    for made_at in [now - 8 * DAY + 1, now, now + DAY - 60_000] {
        let doubt = doubt_of(made_at);
        assert_eq!(resolve(&fence, &doubt).await, Ok(Resolution::NotApplied));
        let late = commit_late(&fence, &doubt).await;
        assert_eq!(late, Err(ErrorKind::Unavailable), "it is void");
    }
    assert_eq!(server.cli(&["GET", "data"]), "3");
    let none = Doubt::new(Vec::new(), new.txn_id);
    assert_eq!(resolve(&fence, &none).await, Err(ErrorKind::Invalid));
}

#[tokio::test]
async fn names_end_when_nobody_commits_for_long_and_then_nothing_is_said_of_them() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let now = millis(&server);
    let doubt = doubt_of(now);
    assert_eq!(commit_late(&fence, &doubt).await, Ok(Written::Applied));
    for what in ["applied", "order"] {
        let name = format!("app:a{{app:a}}:{what}");
        let left: u128 = server.cli(&["PTTL", &name]).parse().unwrap();
        assert!(left > 13 * DAY, "{left}");
        assert_eq!(server.cli(&["DEL", &name]), "1");
    }
    assert_eq!(resolve(&fence, &doubt).await, Err(ErrorKind::Invalid));
    assert_eq!(commit_late(&fence, &doubt).await, Err(ErrorKind::Invalid));
    let next = commit_late(&fence, &doubt_of(now + 1)).await;
    assert_eq!(next, Ok(Written::Applied));
    assert_eq!(server.cli(&["GET", "data"]), "2");
}

#[tokio::test]
async fn a_commit_that_was_applied_in_part_is_neither() {
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let doubt = doubt_of(millis(&server));
    let name = format!("{}:commit", doubt.txn_id);
    let broken = "0123abcd broken 1 ERR value";
    server.cli(&["HSET", "app:a{app:a}:applied", &name, broken]);
    let error = fence.resolve(&doubt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// Not a test, except for the one that starts it: a process whose commit is sent through the proxy
/// of the test.
#[test]
fn sender() {
    in_the_process(async |url| {
        let fence = RedisFence::connect(&url).await.unwrap();
        fence.raise(&key("a"), token(1)).await.unwrap();
        let hold = hold(LONG);
        let executor = hold.executor();
        let done = executor.guarded_async(async |tx| {
            tx.commit_with(move |permit| {
                // The test changes the fate of the connection here, and lets it send.
                stop_at("commit");
                println!("doubt {}", permit.txn_id);
                fence.apply(permit, RedisBatch::new().increment_by("count", 1))
            });
            Ok(())
        });
        report(done.await.map(|done| done.proof));
    });
}

/// Stopped between the send and the answer, resolved from this process; then the late copy arrives,
/// and the sender continues.
#[tokio::test]
async fn a_process_that_is_stopped_before_the_answer_learns_what_another_resolved() {
    for (fate, expected, end, count) in [
        (HELD, Resolution::NotApplied, "ended rolled back", ""),
        (
            UNANSWERED,
            Resolution::Applied,
            "ended committed Fenced",
            "1",
        ),
    ] {
        let server = RedisServer::start();
        // So that the server knows the script, and the sender sends one request.
        let _ = behind(&server).await;
        server.cli(&["DEL", "count"]);
        let proxy = Proxy::before(server.port());
        let url = proxy.url("prefix=app&timeout_millis=60000");
        let mut sender = Stopped::start("doubt::sender", "commit", &url);
        let came = || proxy.wires().iter().map(|wire| wire.came()).sum::<usize>();
        let before = came();
        proxy.all(fate);
        sender.go();
        let doubt = sender.next("doubt ");
        until("the commit is sent", async || came() > before).await;
        until("the commit is applied, if it arrived", async || {
            server.cli(&["GET", "count"]) == count
        })
        .await;
        sender.signal("-STOP");
        let lock = HeldKey {
            key: key("a"),
            token: token(1),
        };
        let txn_id = doubt.trim_start_matches("doubt ").parse().unwrap();
        let doubt = Doubt::new(vec![lock], txn_id);
        let other = fence(&server).await;
        assert_eq!(other.resolve(&doubt).await.unwrap(), expected);
        if fate == HELD {
            deliver(&server, &proxy.wires()).await;
        }
        proxy.next(Fate::KIND);
        assert_eq!(sender.finish(), end);
        assert_eq!(other.resolve(&doubt).await.unwrap(), expected);
        assert_eq!(server.cli(&["GET", "count"]), count);
    }
}

/// Tokens of a store that counts from one are never larger than those of one that counts
/// microseconds.
#[tokio::test]
async fn a_lock_that_was_moved_to_a_store_that_counts_otherwise_is_told_what_moves_its_fence() {
    const THEIRS: u64 = 1 << 50;
    let server = RedisServer::start();
    let fence = fence(&server).await;
    let add_one = async |number: u64| {
        let clock = Clock::system().unwrap();
        let hold = TestHold::new(clock, &Settings::default(), key("a"), token(number), LONG);
        let (commit, executor) = (fence.clone(), hold.executor());
        let run = executor.guarded_async(async |tx| {
            let (commit, batch) = (commit.clone(), RedisBatch::new().increment_by("count", 1));
            tx.commit_with(move |permit| commit.apply(permit, batch));
            Ok(tx.txn_id()?)
        });
        run.await.map(|done| (done.proof, done.value))
    };
    add_one(THEIRS).await.unwrap();

    let refused = fence.raise(&key("a"), token(2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(!refused.is_retryable());
    let text = refused.to_string();
    let (_, forget) = text.split_once("forget the key: ").unwrap();
    let words: Vec<&str> = forget.split(' ').collect();
    assert_eq!(server.cli(&words), "1", "{forget}");

    fence.raise(&key("a"), token(2)).await.unwrap();
    let (proof, name) = add_one(2).await.unwrap();
    assert_eq!(proof, CommitProof::Fenced);
    let zombie = add_one(1).await;
    assert!(matches!(zombie, Err(RunError::Fenced { .. })), "{zombie:?}");
    assert_eq!(server.cli(&["GET", "count"]), "2");
    let locks = vec![HeldKey {
        key: key("a"),
        token: token(2),
    }];
    let resolution = fence.resolve(&Doubt::new(locks, name)).await.unwrap();
    assert_eq!(resolution, Resolution::Applied);
}
