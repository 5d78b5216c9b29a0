//! Sessions of the pool that are not as they were made: in another database, with settings of
//! their own.

use leasehold::ErrorKind;
use leasehold::RunError;
use leasehold::fence::{Fence, Resolve};
use leasehold::run::Resolution;
use leasehold_sqlx::SqlxFence;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{Executor, MySql};

use crate::kit::{LONG, Work, assert_rolled_back, doubt, hold, key, take, take_after, token};
use crate::{MyBank, TAKE, call, taken};

/// Every connection begins with this statement.
async fn begins_with(url: &str, statement: String) -> (MySqlPool, SqlxFence<MySql>) {
    let pool = MySqlPoolOptions::new().max_connections(1);
    let pool = pool.after_connect(move |connection, _| {
        let statement = statement.clone();
        Box::pin(async move { connection.execute(&*statement).await.map(drop) })
    });
    let pool = pool.connect(url).await.expect("a server");
    let fence = SqlxFence::new(pool.clone()).expect("clocks");
    (pool, fence)
}

/// What was there before, with the tables of a fence, or what else a user of the pool has done.
async fn moved(pool: &MySqlPool, other: &MyBank) {
    let elsewhere = format!("USE {}", other.database);
    pool.execute(&*elsewhere).await.expect("it may");
}

const RAISED: &str = "SELECT token FROM leasehold_fence WHERE lock_key = 'a'";

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_in_another_database_is_not_used() {
    let (bank, other) = (MyBank::open(1).await, MyBank::open(1).await);
    let mut named = None;
    moved(&bank.pool, &other).await;
    let done = take_after(&bank, "a", 1, Work::Take, async |permit| {
        named = Some(doubt(permit));
    });
    done.await.expect("applied");
    assert_eq!(bank.sql("SELECT cents FROM account WHERE id = 1"), "990");
    moved(&bank.pool, &other).await;
    let resolution = bank.fence.resolve(&named.expect("a permit")).await;
    assert_eq!(resolution.expect("an answer"), Resolution::Applied);
    moved(&bank.pool, &other).await;
    bank.fence.raise(&key("a"), token(2)).await.expect("newer");
    assert_eq!(bank.sql(RAISED), "2");
    moved(&bank.pool, &other).await;
    let older = take(&bank, "a", 1, Work::Take).await;
    assert!(matches!(older, Err(RunError::Fenced { .. })), "{older:?}");
    for table in ["leasehold_fence", "leasehold_txn"] {
        let there = other.sql(&format!("SELECT COUNT(*) FROM {table}"));
        assert_eq!(there, "0", "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_a_database_stays_in_that_of_its_first_connection() {
    let (bank, other) = (MyBank::open(1).await, MyBank::open(1).await);
    let home = format!("USE {}", bank.database);
    let (pool, fence) = begins_with(&bank.server.url("app", ""), home).await;
    fence.raise(&key("a"), token(1)).await.expect("raised");
    moved(&pool, &other).await;
    fence.raise(&key("a"), token(2)).await.expect("raised");
    assert_eq!(bank.sql(RAISED), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_always_in_another_database_is_refused() {
    let (bank, other) = (MyBank::open(1).await, MyBank::open(1).await);
    let elsewhere = format!("USE {}", other.database);
    let (_, fence) = begins_with(&bank.server.url("app", &bank.database), elsewhere).await;
    let refused = fence.raise(&key("a"), token(1)).await.expect_err("moved");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_settings_of_its_own_goes_back_with_them() {
    let bank = MyBank::open(1).await;
    let url = bank.server.url("app", &bank.database);
    for (setting, is_applied) in [
        ("autocommit = 0", true),
        ("completion_type = 1", true),
        ("TRANSACTION READ ONLY", false),
    ] {
        let (pool, fence) = begins_with(&url, format!("SET SESSION {setting}")).await;
        let session = async || {
            let session = "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@tx_read_only, \
                @@completion_type)";
            let session = sqlx::query_scalar::<_, String>(session).fetch_one(&pool);
            session.await.expect("a session")
        };
        let before = session().await;
        // The second one is raised by the run, in its own session.
        for number in [1, 2] {
            let run = hold("a", number, LONG).executor();
            let run = run.commit(call(&fence, Work::Take)).await;
            assert_eq!(run.is_ok(), is_applied, "{setting}: {run:?}");
            assert_eq!(session().await, before, "{setting}");
        }
        bank.sql("DELETE FROM leasehold_fence");
    }
}

/// `completion_type = 1` is `AND CHAIN` for each `ROLLBACK`: a transaction that may write.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_chains_writes_nothing_after_a_rollback_of_the_work() {
    let bank = MyBank::open(1).await;
    let url = bank.server.url("app", &bank.database);
    let (_, fence) = begins_with(&url, "SET SESSION completion_type = 1".into()).await;
    let call = fence.transaction(move |tx| {
        Box::pin(async move {
            let left = taken(tx).await?;
            for statement in ["ROLLBACK", TAKE, "COMMIT"] {
                let _ = tx.execute(statement).await;
            }
            Ok(left)
        })
    });
    let run = hold("a", 1, LONG).executor().commit(call).await;
    assert_rolled_back(&run.map(|done| (done.value, done.proof)));
    assert_eq!(bank.sql("SELECT cents FROM account WHERE id = 1"), "1000");
}
