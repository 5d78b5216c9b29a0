//! What the wire does to a commit: lost answers, cut requests, and requests that arrive late.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::run::Resolution;
use leasehold::{LockManager, RunError};
use leasehold_sqlx::SqlxFence;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::kit::{Bank, Work, hold, key, token};
use crate::proxy::{Fate, Proxy};
use crate::servers::every_cut_of_the_connection;
use crate::{PgBank, TAKE, call, pool};

fn url(proxy: &Proxy) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port())
}

/// The connection is cut after each few bytes of a fenced transaction, either way: each outcome is
/// what happened, and each doubt is resolved as it was.
#[tokio::test(flavor = "multi_thread")]
async fn every_cut_of_the_connection_is_reported_as_it_happened() {
    let bank = PgBank::open(4).await;
    let take = |proxy: &Proxy| {
        let options = url(proxy).parse::<PgConnectOptions>();
        let pool = PgPoolOptions::new()
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
    let bank = PgBank::open(4).await;
    let proxy = Arc::new(Proxy::before(bank.server.port()));
    let fence = SqlxFence::new(pool(&url(&proxy), 1).await).expect("clocks");
    let ttl = Duration::from_secs(3);
    let hold = hold("late", 1, ttl);
    let holds_back = Arc::clone(&proxy);
    let call = fence.transaction(move |tx| {
        Box::pin(async move {
            let left: i64 = sqlx::query_scalar(TAKE).fetch_one(&mut **tx).await?;
            holds_back.all(Fate {
                hold_up: true,
                ..Fate::KIND
            });
            Ok(left)
        })
    });
    let run = hold.executor().commit(call).await;
    assert!(
        matches!(
            run,
            Err(RunError::InDoubt { .. } | RunError::RolledBack { .. })
        ),
        "{run:?}"
    );
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
    if let Some(named) = run.expect_err("late").doubt() {
        let resolution = bank.fence.resolve(&named).await.expect("an answer");
        assert_eq!(resolution, Resolution::NotApplied);
    }
}

/// The server commits, and its answer never arrives: the run asks what became of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_resolved_within_its_run() {
    let bank = PgBank::open(4).await;
    let proxy = Arc::new(Proxy::before(bank.server.port()));
    let fence = SqlxFence::new(pool(&url(&proxy), 1).await).expect("clocks");
    let swallows = Arc::clone(&proxy);
    let call = fence.transaction(move |tx| {
        Box::pin(async move {
            let left: i64 = sqlx::query_scalar(TAKE).fetch_one(&mut **tx).await?;
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
    let bank = PgBank::open(2).await;
    let locks = LockManager::connect("memory:").await.expect("a store");
    let lock = locks.lock("tied").fence(bank.fence.clone());
    let done = lock.commit(bank.commit(Work::Take)).await.expect("applied");
    let raised = "SELECT token FROM leasehold.fence WHERE key = 'tied'";
    assert_eq!(bank.server.psql(raised), done.token.to_string());
}
