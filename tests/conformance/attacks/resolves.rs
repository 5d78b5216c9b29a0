//! Commits that are resolved by several callers at once, while they are on their way.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve};
use leasehold::postgres::PgFence;
use leasehold::redis::{RedisBatch, RedisFence};
use leasehold::run::{CommitPermit, Doubt, Resolution};
use leasehold::testing::TestHold;
use leasehold::zookeeper::{ZkBatch, ZkFence};
use leasehold::{FencingToken, Key, RunError, Settings};
use tokio::sync::oneshot;

use super::sites::database;
use crate::redis::RedisServer;
use crate::zookeeper::{Server, open, options, raw};

/// Longer than a test.
const TTL: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 24;
const CALLERS: u64 = 4;

fn key() -> Key {
    "a".parse().unwrap()
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

/// Asks until it is known.
async fn resolved(fence: &impl Resolve, doubt: &Doubt) -> Resolution {
    for _ in 0..1_000 {
        if let Ok(resolution) = fence.resolve(doubt).await {
            return resolution;
        }
        tokio::task::yield_now().await;
    }
    panic!("never known: {doubt:?}");
}

/// One commit, and callers that resolve it meanwhile, after so many turns of the others. What all
/// of them were told, and the run said, if it knows.
async fn race<E: Debug, F: Future<Output = Result<(), RunError<(), E>>>>(
    other: &impl Resolve,
    turns: u64,
    run: impl FnOnce(TestHold, oneshot::Sender<Doubt>) -> F,
) -> Resolution {
    let clock = Clock::system().unwrap();
    let hold = TestHold::new(clock, &Settings::default(), key(), token(1), TTL);
    let (tell, told) = oneshot::channel();
    let resolving = async {
        let doubt = told.await.unwrap();
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let answers = join_all((0..CALLERS).map(|_| resolved(other, &doubt))).await;
        (doubt, answers)
    };
    let (outcome, (doubt, answers)) = tokio::join!(run(hold, tell), resolving);
    let first = answers[0];
    let what = format!("{turns} turns: {outcome:?}, {answers:?}");
    assert!(answers.iter().all(|answer| *answer == first), "{what}");
    assert_eq!(resolved(other, &doubt).await, first, "{what}");
    match outcome {
        Ok(()) => assert_eq!(first, Resolution::Applied, "{what}"),
        Err(RunError::InDoubt { .. }) => {}
        Err(error) => {
            assert_eq!(error.was_applied(), Some(false), "{what}");
            assert_eq!(first, Resolution::NotApplied, "{what}");
        }
    }
    first
}

/// Before the send of a commit: its name goes to whoever resolves it.
fn named(permit: &CommitPermit, tell: oneshot::Sender<Doubt>) {
    let doubt = Doubt::new(permit.locks().to_vec(), permit.txn_id);
    tell.send(doubt).unwrap();
}

fn applied(seen: &[Resolution]) -> usize {
    let applied = seen.iter().filter(|one| **one == Resolution::Applied);
    applied.count()
}

#[tokio::test]
async fn whoever_resolves_a_commit_in_redis_meanwhile_all_say_what_became_of_it() {
    let server = RedisServer::start();
    let url = server.url("restart_quarantine=off");
    let (ours, other) = (
        RedisFence::connect(&url).await.unwrap(),
        RedisFence::connect(&url).await.unwrap(),
    );
    ours.raise(&key(), token(1)).await.unwrap();
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let run = async |hold: TestHold, tell| {
            let fence = ours.clone();
            let call = move |permit: CommitPermit| {
                named(&permit, tell);
                fence.apply(permit, RedisBatch::new().increment_by("count", 1))
            };
            hold.executor().commit(call).await.map(drop)
        };
        seen.push(race(&other, round, run).await);
        let count = server.cli(&["GET", "count"]).parse().unwrap_or(0);
        assert_eq!(applied(&seen), count, "{seen:?}");
    }
}

#[tokio::test]
async fn whoever_resolves_a_commit_in_zookeeper_meanwhile_all_say_what_became_of_it() {
    let server = Server::shared();
    let client = raw(&server).await;
    let persistent = zookeeper_client::CreateMode::Persistent;
    let open_to_all = persistent.with_acls(zookeeper_client::Acls::anyone_all());
    client.create("/raced", b"", &open_to_all).await.unwrap();
    let fence = async || ZkFence::new(&open(options(&server.address(), "/races")).await);
    let (ours, other) = (fence().await, fence().await);
    ours.raise(&key(), token(1)).await.unwrap();
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let run = async |hold: TestHold, tell| {
            let fence = ours.clone();
            let call = move |permit: CommitPermit| {
                named(&permit, tell);
                fence.apply(permit, ZkBatch::new().set("/raced", "again"))
            };
            hold.executor().commit(call).await.map(drop)
        };
        seen.push(race(&other, round, run).await);
        let (_, stat) = client.get_data("/raced").await.unwrap();
        assert_eq!(
            i32::try_from(applied(&seen)).unwrap(),
            stat.version,
            "{seen:?}"
        );
    }
}

#[tokio::test]
async fn whoever_resolves_a_commit_in_postgres_meanwhile_all_say_what_became_of_it() {
    let server = database("races");
    let url = format!("postgres://postgres@127.0.0.1:{}/races", server.port());
    let fence = async || PgFence::connect(&url).await.unwrap().wait(TTL / 2);
    let (ours, other) = (fence().await, fence().await);
    ours.create_schema().await.unwrap();
    let psql = |statement: &str| server.psql_in("races", statement).unwrap();
    psql("CREATE TABLE count (n bigint); INSERT INTO count VALUES (0)");
    ours.raise(&key(), token(1)).await.unwrap();
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let run = async |hold: TestHold, tell| {
            let call = ours.transaction(async move |t| {
                t.execute("UPDATE count SET n = n + 1", &[]).await?;
                t.done(())
            });
            let call = move |permit: CommitPermit| {
                named(&permit, tell);
                call(permit)
            };
            hold.executor().commit(call).await.map(drop)
        };
        seen.push(race(&other, round, run).await);
        let count: usize = psql("SELECT n FROM count").parse().unwrap();
        assert_eq!(applied(&seen), count, "{seen:?}");
    }
}
