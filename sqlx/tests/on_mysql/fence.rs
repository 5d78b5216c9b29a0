//! What only MariaDB has: settings of the server and of the session, names that are deleted.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::run::Resolution;
use leasehold::{ErrorKind, RunError};
use leasehold_sqlx::{Once, SqlxFence};
use sqlx::Executor;
use sqlx::mysql::MySqlPoolOptions;

use crate::kit::{Bank, Work, assert_rolled_back, doubt, key, take, take_after, token};
use crate::server::MariaDb;
use crate::servers::several_locks;
use crate::{MyBank, call, pool};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_lose_a_commit_is_refused() {
    let server = Arc::new(MariaDb::start_with(&["--log-bin=log", "--sync-binlog=1"]));
    let bank = MyBank::on(server, 2).await;
    let owner = pool(&bank.server.url("root", &bank.database), 1).await;
    let owner = SqlxFence::new(owner).expect("clocks");
    for (name, bad) in [("innodb_flush_log_at_trx_commit", 2), ("sync_binlog", 0)] {
        bank.sql(&format!("SET GLOBAL {name} = {bad}"));
        let schema = owner.create_schema().await.expect_err(name);
        assert_eq!(schema.kind(), ErrorKind::Unsupported, "{schema}");
        let raised = bank.fence.raise(&key("a"), token(1)).await;
        let raised = raised.expect_err(name);
        assert_eq!(raised.kind(), ErrorKind::Unsupported, "{raised}");
        assert_rolled_back(&take(&bank, "a", 1, Work::Take).await);
        bank.sql(&format!("SET GLOBAL {name} = 1"));
        bank.fence.raise(&key("a"), token(1)).await.expect("raised");
    }
    take(&bank, "a", 1, Work::Take).await.expect("applied");
    assert_eq!(bank.cents().await, 990);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_row_locks_are_refused() {
    let bank = MyBank::open(1).await;
    let owner = pool(&bank.server.url("root", &bank.database), 1).await;
    let owner = SqlxFence::new(owner).expect("clocks");
    // One of the user's own.
    bank.sql("CREATE TABLE leasehold_audit (a INT) ENGINE = InnoDB");
    owner.create_schema().await.expect("all five");
    bank.sql("ALTER TABLE leasehold_fence ENGINE = Aria");
    let refused = owner.create_schema().await.expect_err("no row locks");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_is_refused() {
    let server = MariaDb::start_in_a_cluster();
    let database = server.database();
    let owner = pool(&server.url("root", &database), 1).await;
    let owner = SqlxFence::new(owner).expect("clocks");
    let refused = owner.create_schema().await.expect_err("a node");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("Galera"), "{refused}");
}

/// Whoever switches checks off for a session is fenced all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_checks_is_fenced() {
    let bank = MyBank::open(2).await;
    let unchecked = MySqlPoolOptions::new().max_connections(1);
    let unchecked = unchecked.after_connect(|connection, _| {
        Box::pin(async move {
            connection
                .execute("SET SESSION check_constraint_checks = 0")
                .await?;
            Ok(())
        })
    });
    let url = bank.server.url("app", &bank.database);
    let unchecked = unchecked.connect(&url).await.expect("a server");
    let unchecked = SqlxFence::new(unchecked).expect("clocks");
    bank.fence.raise(&key("a"), token(2)).await.expect("raised");
    let executor = crate::kit::hold("a", 1, crate::kit::LONG).executor();
    let older = executor.commit(call(&unchecked, Work::Take)).await;
    assert!(matches!(older, Err(RunError::Fenced { .. })), "{older:?}");
    assert_eq!(bank.cents().await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_back_to_its_pool_as_it_was() {
    let bank = MyBank::open(1).await;
    let session = async || {
        let session = "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@tx_read_only, \
            @@wait_timeout, @@net_read_timeout, @@net_write_timeout, @@innodb_lock_wait_timeout)";
        let session = sqlx::query_scalar::<_, String>(session).fetch_one(&bank.pool);
        session.await.expect("a session")
    };
    let before = session().await;
    for work in [
        Work::Take,
        Work::Refuse,
        Work::Fail {
            is_swallowed: false,
        },
    ] {
        let _ = take(&bank, "a", 1, work).await;
        assert_eq!(session().await, before, "{work:?}");
    }
    bank.fence.raise(&key("a"), token(2)).await.expect("raised");
    assert_eq!(session().await, before);
    let fenced = take(&bank, "a", 1, Work::Take).await;
    assert!(matches!(fenced, Err(RunError::Fenced { .. })), "{fenced:?}");
    assert_eq!(session().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_under_several_locks_enters_the_fence_of_each() {
    several_locks(&MyBank::open(4).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_deleted_after_their_time_while_the_run_goes_on() {
    let bank = MyBank::open(4).await;
    let mut named = None;
    let done = take_after(&bank, "a", 1, Work::Take, async |permit| {
        named = Some(doubt(permit));
    });
    done.await.expect("applied");
    bank.fence.raise(&key("a"), token(2)).await.expect("newer");
    bank.sql("UPDATE leasehold_meta SET names_kept_s = -60, swept_at = '1970-01-02'");
    for _ in 1..64 {
        assert_rolled_back(&take(&bank, "b", 1, Work::Refuse).await);
        take(&bank, "b", 1, Work::Take).await.expect("applied");
    }
    let named = named.expect("a permit");
    // In a task of its own.
    let unknown = loop {
        match bank.fence.resolve(&named).await {
            Ok(resolution) => assert_eq!(resolution, Resolution::Applied),
            Err(error) => break error,
        }
    };
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_again_when_its_time_is_over() {
    let bank = MyBank::open(2).await;
    let claimed = async |name: &str, keep| {
        let mut tx = bank.pool.begin().await.expect("begun");
        let is_new = tx.once(name, Duration::from_secs(keep)).await;
        tx.commit().await.expect("committed");
        is_new.expect("a claim")
    };
    assert!(claimed("a@1", 60).await);
    assert!(!claimed("a@1", 60).await, "it was done");
    assert!(claimed("A@1", 60).await, "another name");
    assert!(claimed("a@2", 0).await, "another name");
    assert!(claimed("a@2", 0).await, "its time is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_the_schema_is_named_as_such() {
    let bank = MyBank::open(1).await;
    bank.sql("DROP TABLE leasehold_fence");
    let error = bank.fence.raise(&key("a"), token(1)).await;
    let error = error.expect_err("no schema");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_rolled_back(&take(&bank, "a", 1, Work::Take).await);
}
