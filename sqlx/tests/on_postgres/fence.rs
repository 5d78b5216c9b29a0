//! What only PostgreSQL has: work that ends its transaction, several keys, names that are deleted.

use leasehold::fence::{Fence, Resolve};
use leasehold::run::Resolution;
use leasehold::{Cause, ErrorKind, RunError};

use crate::kit::{Bank, Work, assert_rolled_back, doubt, key, take, take_after, token};
use crate::server::breathe;
use crate::servers::several_locks;
use leasehold_sqlx::SqlxFence;

use crate::{PgBank, TAKE};

/// An error that the work ignores leaves an aborted transaction behind, whose `COMMIT` would be
/// answered without an error.
#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_transaction_is_not_reported_as_committed() {
    let bank = PgBank::open(1).await;
    let aborted = take(&bank, "a", 1, Work::Fail { is_swallowed: true }).await;
    assert_rolled_back(&aborted);
    assert_eq!(bank.cents().await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_work_sends_after_the_end_of_its_transaction_is_in_doubt() {
    let bank = PgBank::open(1).await;
    // It is refused, because it was not sealed, and what follows is not fenced.
    for end in ["COMMIT", "ROLLBACK"] {
        let before = bank.cents().await;
        let ended = take(&bank, "a", 1, Work::End(end)).await;
        assert!(matches!(ended, Err(RunError::InDoubt { .. })), "{ended:?}");
        assert_eq!(bank.cents().await, before - 10, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_the_work_whose_error_is_its_own_is_rolled_back() {
    let bank = PgBank::open(1).await;
    let call = bank.fence.transaction::<(), _>(|tx| {
        Box::pin(async move {
            sqlx::query(TAKE).execute(&mut **tx).await?;
            sqlx::query("COMMIT").execute(&mut **tx).await?;
            unreachable!("it was not sealed")
        })
    });
    let executor = crate::kit::hold("a", 1, crate::kit::LONG).executor();
    let refused = executor.commit(call).await.expect_err("a COMMIT");
    // The transaction is over; nothing of it was applied, and the fence says so.
    let named = refused.doubt().expect("a doubt");
    let resolution = bank.fence.resolve(&named).await.expect("an answer");
    assert_eq!(resolution, Resolution::NotApplied);
    assert_eq!(bank.cents().await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_works_own_type_comes_out_of_the_run() {
    #[derive(Debug, PartialEq)]
    enum Why {
        Sql,
        Poor(i64),
    }
    impl From<sqlx::Error> for Why {
        fn from(_: sqlx::Error) -> Self {
            Self::Sql
        }
    }
    impl std::fmt::Display for Why {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }
    impl std::error::Error for Why {}
    let bank = PgBank::open(1).await;
    let run = async |statement: &'static str| {
        let call = bank.fence.transaction_as::<Why, i64, _>(move |tx| {
            Box::pin(async move {
                let left = sqlx::query_scalar(statement).fetch_one(&mut **tx).await?;
                Err(Why::Poor(left))
            })
        });
        let executor = crate::kit::hold("a", 1, crate::kit::LONG).executor();
        match executor.commit(call).await {
            Err(RunError::RolledBack {
                cause: Cause::Failed(why),
                ..
            }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(run(TAKE).await, Why::Poor(990));
    assert_eq!(run("SELECT 1 / 0").await, Why::Sql);
    assert_eq!(bank.cents().await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_under_several_locks_enters_the_fence_of_each() {
    several_locks(&PgBank::open(4).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_deleted_after_their_time_while_the_run_goes_on() {
    let bank = PgBank::open(4).await;
    let mut named = None;
    let done = take_after(&bank, "a", 1, Work::Take, async |permit| {
        named = Some(doubt(permit));
    });
    done.await.expect("applied");
    bank.fence.raise(&key("a"), token(2)).await.expect("newer");
    bank.server
        .psql("UPDATE leasehold.fence_meta SET names_kept = '0', swept_at = '-infinity'");
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
        breathe().await;
    };
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_the_schema_is_named_as_such() {
    let bank = PgBank::open(1).await;
    bank.server.psql("DROP SCHEMA leasehold CASCADE");
    let error = bank.fence.raise(&key("a"), token(1)).await;
    let error = error.expect_err("no schema");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_rolled_back(&take(&bank, "a", 1, Work::Take).await);
}

/// A cron job commits once.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_deleted_after_the_first_commit_of_a_process() {
    let bank = PgBank::open(4).await;
    bank.server.psql(
        "INSERT INTO leasehold.txn VALUES ('00000000-0000-0000-0000-000000000001', '{a}', '{1}', false, '2000-01-01')",
    );
    take(&bank, "a", 1, Work::Take).await.expect("applied");
    // In a task of its own.
    while bank.server.psql("SELECT count(*) FROM leasehold.txn") != "1" {
        breathe().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_somebody_locks_ends_its_creation_with_what_to_do() {
    let bank = PgBank::open(4).await;
    let mut somebody = bank.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE leasehold.fence_meta IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *somebody)
        .await
        .unwrap();
    let fence = bank
        .fence
        .clone()
        .wait(std::time::Duration::from_millis(100));
    let error = fence.create_schema().await.expect_err("it is locked");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("pg_stat_activity"), "{error}");
}

/// A function of another role would have a superuser's rights.
#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_calls_no_function_of_another_role() {
    let bank = PgBank::open(4).await;
    bank.server.psql(
        "CREATE ROLE mallory; DROP SCHEMA leasehold CASCADE; CREATE SCHEMA leasehold AUTHORIZATION mallory; SET ROLE mallory; \
         CREATE FUNCTION leasehold.enter(text[], bigint[], uuid, int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN 0; END $$; \
         CREATE FUNCTION leasehold.raise(text, bigint, int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN 0; END $$; \
         CREATE FUNCTION leasehold.resolve(text[], bigint[], uuid, int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN true; END $$",
    );
    // As a process that connects now.
    let pool = crate::pool(&bank.server.url(), 2).await;
    let bank = PgBank {
        fence: SqlxFence::new(pool.clone()).expect("clocks"),
        pool,
        ..bank
    };
    for _ in 0..2 {
        assert_rolled_back(&take(&bank, "a", 1, Work::Take).await);
        let error = bank.fence.raise(&key("a"), token(1)).await;
        assert_eq!(error.expect_err("mallory's").kind(), ErrorKind::Denied);
        let mut named = None;
        let refused = take_after(&bank, "a", 1, Work::Take, async |permit| {
            named = Some(doubt(permit));
        });
        assert_rolled_back(&refused.await);
        let error = bank.fence.resolve(&named.expect("a permit")).await;
        assert_eq!(error.expect_err("mallory's").kind(), ErrorKind::Denied);
    }
    let is = "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'";
    assert_eq!(bank.server.psql(is), "f");
}
