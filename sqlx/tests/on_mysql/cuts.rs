//! What the wire does to a commit: lost answers, cut requests, and requests that arrive late.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::run::Resolution;
use leasehold::{LockManager, RunError};
use leasehold_sqlx::SqlxFence;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::kit::{Bank, Work, hold, key, token};
use crate::proxy::{Fate, Proxy};
use crate::servers::every_cut_of_the_connection;
use crate::{MyBank, call, pool, server, taken};

fn url(bank: &MyBank, proxy: &Proxy) -> String {
    server::url(proxy.port(), "app", &bank.database)
}

/// The connection is cut after each few bytes of a fenced transaction, either way: each outcome is
/// what happened, and each doubt is resolved as it was.
#[tokio::test(flavor = "multi_thread")]
async fn every_cut_of_the_connection_is_reported_as_it_happened() {
    let bank = MyBank::open(4).await;
    let take = |proxy: &Proxy| {
        let options = url(&bank, proxy).parse::<MySqlConnectOptions>();
        let pool = MySqlPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(2))
            .connect_lazy_with(options.expect("a URL"));
        call(&SqlxFence::new(pool).expect("clocks"), Work::Take)
    };
    every_cut_of_the_connection(&bank, bank.server.port(), &take).await;
}

/// The request that seals and commits is on the wire while the lease ends: the server refuses it,
/// though nobody has raised the fence.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_arrives_after_the_lease_is_refused_by_the_server() {
    let bank = MyBank::open(4).await;
    let proxy = Arc::new(Proxy::before(bank.server.port()));
    let fence = SqlxFence::new(pool(&url(&bank, &proxy), 1).await).expect("clocks");
    let hold = hold("late", 1, Duration::from_secs(3));
    let holds_back = Arc::clone(&proxy);
    let call = fence.transaction(move |tx| {
        Box::pin(async move {
            let left = taken(tx).await?;
            holds_back.all(Fate {
                hold_up: true,
                ..Fate::KIND
            });
            Ok(left)
        })
    });
    let run = hold.executor().commit(call).await;
    assert!(matches!(run, Err(RunError::InDoubt { .. })), "{run:?}");
    while hold.lease().is_live() {
        tokio::task::yield_now().await;
    }
    proxy.all(Fate::KIND);
    // It waits for the transaction, so what was held back has arrived.
    bank.fence
        .raise(&key("late"), token(2))
        .await
        .expect("newer");
    assert_eq!(bank.cents().await, 1000);
    let named = run.expect_err("late").doubt().expect("a doubt");
    let resolution = bank.fence.resolve(&named).await.expect("an answer");
    assert_eq!(resolution, Resolution::NotApplied);
}

/// The server commits, and its answer never arrives: the run asks what became of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_resolved_within_its_run() {
    let bank = MyBank::open(4).await;
    let proxy = Arc::new(Proxy::before(bank.server.port()));
    let fence = SqlxFence::new(pool(&url(&bank, &proxy), 1).await).expect("clocks");
    let swallows = Arc::clone(&proxy);
    let call = fence.transaction(move |tx| {
        Box::pin(async move {
            let left = taken(tx).await?;
            for wire in swallows.wires() {
                wire.set(Fate {
                    swallow_down: true,
                    ..Fate::KIND
                });
            }
            Ok(left)
        })
    });
    // Half of it is for the answer, and half for the question.
    let executor = hold("lost", 1, Duration::from_secs(10)).executor();
    let done = executor.commit(call).await.expect("applied");
    assert_eq!(done.value, 990);
    assert_eq!(bank.cents().await, 990);
}

/// A manager raises the fence through the same pool before it returns a guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_tied_to_the_fence_raises_it() {
    let bank = MyBank::open(2).await;
    let locks = LockManager::connect("memory:").await.expect("a store");
    let lock = locks.lock("tied").fence(bank.fence.clone());
    let done = lock.commit(bank.commit(Work::Take)).await.expect("applied");
    let raised = "SELECT token FROM leasehold_fence WHERE lock_key = 'tied'";
    assert_eq!(bank.sql(raised), done.token.to_string());
}

/// Every commit that was answered is there, and every other one is resolved as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_no_commit_that_it_answered() {
    let server = Arc::new(server::MariaDb::start());
    let bank = Arc::new(MyBank::on(server, 8).await);
    let mut row = 0;
    for _ in 0..3 {
        let runs = (0..6).map(|_| {
            row += 1_000_000;
            tokio::spawn(inserts(Arc::clone(&bank), row))
        });
        let runs: Vec<_> = runs.collect();
        server::until("commits", async || {
            bank.sql("SELECT COUNT(*) > 30 FROM account WHERE cents = 5") == "1"
        })
        .await;
        bank.server.kill();
        let ended = futures_util::future::join_all(runs).await;
        bank.server.restart();
        for run in ended {
            let (first, last, outcome) = run.expect("no panic");
            let rows = format!("SELECT COUNT(*) FROM account WHERE id BETWEEN {first} AND {last}");
            let answered = (last - first + 1).to_string();
            assert_eq!(bank.sql(&rows), answered, "{outcome:?}");
            let next = format!("SELECT COUNT(*) FROM account WHERE id = {}", last + 1);
            let is_there = bank.sql(&next) == "1";
            let is_applied = match outcome.doubt() {
                Some(named) => {
                    let resolution = bank.fence.resolve(&named).await.expect("an answer");
                    resolution == Resolution::Applied
                }
                None => false,
            };
            assert_eq!(is_applied, is_there, "{outcome:?}");
        }
        bank.sql("DELETE FROM account WHERE cents = 5");
    }
}

/// Commits a row after the other until a commit fails: the first, the last that was answered, and
/// the failure of the next one.
async fn inserts(bank: Arc<MyBank>, first: i64) -> (i64, i64, RunError<()>) {
    for row in first.. {
        let call = bank.fence.transaction(move |tx| {
            Box::pin(async move {
                let insert = sqlx::query("INSERT INTO account VALUES (?, 5)").bind(row);
                insert.execute(&mut **tx).await?;
                Ok(())
            })
        });
        let executor = hold("killed", 1, Duration::from_secs(2)).executor();
        if let Err(outcome) = executor.commit(call).await {
            return (first, row - 1, outcome);
        }
    }
    unreachable!("the server is killed")
}
