//! Work that ends its transaction: by a statement that commits, by a deadlock, by `ROLLBACK`.

use futures_util::future::join;
use leasehold::fence::Resolve;
use leasehold::{BoxError, Cause, ErrorKind, RunError};
use leasehold_sqlx::SqlxFence;
use sqlx::{Executor, MySql, MySqlPool, Transaction};

use crate::kit::{Bank, LONG, Work, assert_rolled_back, hold};
use crate::{MyBank, TAKE, call, pool, taken};

/// The same bank, as a user that may do everything.
async fn owned() -> (MyBank, SqlxFence<MySql>) {
    let bank = MyBank::open(2).await;
    let owner = pool(&bank.server.url("root", &bank.database), 2).await;
    let fence = SqlxFence::new(owner).expect("clocks");
    (bank, fence)
}

/// What commits in MariaDB, with and without a word, and how many statements of the work are
/// applied.
const COMMITS: [(&str, i64); 7] = [
    ("COMMIT", 1),
    ("BEGIN", 1),
    ("START TRANSACTION", 1),
    ("CREATE TABLE noise (a INT)", 1),
    ("LOCK TABLES account WRITE", 1),
    ("ANALYZE TABLE account", 1),
    // The next statement is committed by itself.
    ("SET autocommit = 1", 2),
];

#[tokio::test(flavor = "multi_thread")]
async fn work_that_commits_is_in_doubt_and_reported_as_partly_applied() {
    let (bank, fence) = owned().await;
    for (statement, applied) in COMMITS {
        for is_refused in [false, true] {
            let before = bank.cents().await;
            let call = fence.transaction::<i64, _>(move |tx| {
                Box::pin(async move {
                    let left = taken(tx).await?;
                    let _ = tx.execute(statement).await;
                    let _ = tx.execute(TAKE).await;
                    let _ = tx.execute("UNLOCK TABLES").await;
                    if is_refused {
                        return Err("refused".into());
                    }
                    Ok(left)
                })
            });
            let run = hold("a", 1, LONG).executor().commit(call).await;
            let run = run.map(|done| done.value);
            assert!(
                matches!(run, Err(RunError::InDoubt { .. })),
                "{statement}: {run:?}"
            );
            let named = run.expect_err("in doubt").doubt().expect("a doubt");
            for _ in 0..2 {
                let partly = bank.fence.resolve(&named).await.expect_err(statement);
                assert_eq!(partly.kind(), ErrorKind::Invalid, "{partly}");
                assert!(partly.to_string().contains("a part"), "{partly}");
            }
            let expected = before - 10 * applied;
            assert_eq!(bank.cents().await, expected, "{statement} {is_refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_rolls_back_writes_nothing_afterwards() {
    let (bank, fence) = owned().await;
    for end in [
        "ROLLBACK",
        "ROLLBACK; BEGIN",
        "ROLLBACK; SET autocommit = 1",
    ] {
        let run = hold("a", 1, LONG).executor();
        let run = run.commit(call(&fence, Work::End(end))).await;
        assert_rolled_back(&run.map(|done| (done.value, done.proof)));
        assert_eq!(bank.cents().await, 1000, "{end}");
    }
}

/// Statements that do not commit change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn work_with_savepoints_and_temporary_tables_is_committed() {
    let (bank, fence) = owned().await;
    for statement in ["SAVEPOINT x", "CREATE TEMPORARY TABLE noise (a INT)"] {
        let before = bank.cents().await;
        let run = hold("a", 1, LONG).executor();
        let run = run.commit(call(&fence, Work::End(statement))).await;
        run.expect(statement);
        assert_eq!(bank.cents().await, before - 20, "{statement}");
    }
}

/// Ends the transaction as the victim of a deadlock; the error of the victim's statement.
async fn deadlock(tx: &mut Transaction<'_, MySql>, pool: &MySqlPool) -> BoxError {
    let mut other = pool.begin().await.expect("begun");
    // Whoever has written less is the victim.
    let more = "INSERT INTO account SELECT seq + 1000, 0 FROM seq_1_to_300";
    other.execute(more).await.expect("rows");
    let second = "UPDATE account SET cents = cents + 1 WHERE id = 2";
    other.execute(second).await.expect("a row");
    let ours = tx.execute(second);
    let theirs = other.execute("UPDATE account SET cents = cents + 1 WHERE id = 1");
    let (ours, theirs) = join(ours, theirs).await;
    theirs.expect("it has written more");
    other.rollback().await.expect("rolled back");
    ours.expect_err("a deadlock").into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_rolled_back_whether_the_work_fails_by_it_or_goes_on() {
    let bank = MyBank::open(4).await;
    for is_swallowed in [false, true] {
        let pool = bank.pool.clone();
        let call = bank.fence.transaction::<i64, _>(move |tx| {
            Box::pin(async move {
                let left = taken(tx).await?;
                let error = deadlock(tx, &pool).await;
                if !is_swallowed {
                    return Err(error);
                }
                tx.execute(TAKE).await?;
                Ok(left)
            })
        });
        let run = hold("a", 1, LONG).executor().commit(call).await;
        match run.map(|done| done.value) {
            Err(RunError::RolledBack {
                cause: Cause::Failed(error),
                ..
            }) if !is_swallowed => assert!(error.to_string().contains("1213"), "{error}"),
            Err(RunError::RolledBack { .. }) if is_swallowed => {}
            other => panic!("{is_swallowed}: {other:?}"),
        }
        assert_eq!(bank.cents().await, 1000, "{is_swallowed}");
    }
}

/// It is committed, and not compared with the end of the lease.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_leaves_its_database_is_in_doubt() {
    let (bank, fence) = owned().await;
    let other = MyBank::open(1).await;
    let elsewhere = format!("USE {}", other.database);
    let call = fence.transaction::<(), _>(move |tx| {
        Box::pin(async move {
            tx.execute(TAKE).await?;
            tx.execute(&*elsewhere).await?;
            Ok(())
        })
    });
    let run = hold("a", 1, LONG).executor().commit(call).await;
    assert!(matches!(run, Err(RunError::InDoubt { .. })), "{run:?}");
    assert_eq!(bank.cents().await, 990);
}
