//! What comes out of a fenced transaction.

use leasehold::run::CommitProof;
use leasehold::{Cause, RunError};

use crate::world::{Bank, TAKE, assert_not_applied, hold, take_ten};

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("not enough: {0}")]
struct NotEnough(i64);

#[tokio::test]
async fn a_value_comes_out_of_the_commit() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let call = fence.transaction(async |t| {
        let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
        t.done(left)
    });
    let done = hold(1).executor().commit(call).await.unwrap();
    assert_eq!((done.value, done.proof), (90, CommitProof::Fenced));
    assert_eq!(bank.cents(), 90);
}

#[tokio::test]
async fn a_value_comes_out_of_a_run_with_more_than_a_commit() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let hold = hold(1);
    let executor = hold.executor();
    let done = executor.guarded_async(async |tx| {
        tx.check()?;
        Ok(tx.commit_with(fence.transaction(async |t| {
            let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
            t.done(left)
        })))
    });
    assert_eq!(done.await.unwrap().value.take(), Some(90));
}

#[tokio::test]
async fn an_error_of_ones_own_comes_out_as_it_is_and_nothing_is_changed() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let call = fence.transaction_as::<NotEnough, (), _, _>(async |t| {
        let left: i64 = t.query_one(TAKE, &[&110_i64]).await?.get(0);
        t.refuse(NotEnough(left))
    });
    match hold(1).executor().commit(call).await {
        Err(RunError::RolledBack {
            cause: Cause::Failed(NotEnough(-10)),
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    let boxed = fence.transaction(async |t| {
        if t.query_one(TAKE, &[&110_i64]).await?.get::<_, i64>(0) < 0 {
            return t.refuse(NotEnough(-10));
        }
        t.done(())
    });
    match hold(1).executor().commit(boxed).await {
        Err(RunError::RolledBack {
            cause: Cause::Failed(error),
            ..
        }) => {
            assert_eq!(error.downcast_ref(), Some(&NotEnough(-10)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bank.cents(), 100);
    // Its connection is used again: nothing of it was left open.
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
}

#[tokio::test]
async fn a_statement_that_fails_rolls_back() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let call = fence.transaction(async |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        t.execute("INSERT INTO account VALUES (1, 0)", &[]).await?;
        t.done(())
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
    assert_eq!(bank.cents(), 100);
}

/// `COMMIT` of an aborted transaction answers `ROLLBACK`, without an error.
#[tokio::test]
async fn a_transaction_whose_error_was_swallowed_is_not_reported_as_committed() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let call = fence.transaction(async |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        let _ = t.execute("SELECT 1 / 0", &[]).await;
        t.done(())
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
    assert_eq!(bank.cents(), 100);
}

#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_rolls_back() {
    let bank = Bank::open().await;
    bank.psql("CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO late VALUES (1)");
    let fence = bank.fence().await;
    let call = fence.transaction(async |t| {
        t.execute("INSERT INTO late VALUES (1)", &[]).await?;
        t.done(())
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
}

#[tokio::test]
async fn a_work_that_would_end_the_transaction_itself_is_rolled_back() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    for end in [
        "COMMIT",
        "ROLLBACK",
        "/* quietly */ commit",
        "ROLLBACK -- TO a\n AND NO CHAIN",
    ] {
        for fails in [false, true] {
            let call = fence.transaction(async move |t| {
                t.execute(TAKE, &[&10_i64]).await?;
                // Whoever swallows the error changes nothing either.
                let _ = t.execute(end, &[]).await;
                let took = t.execute(TAKE, &[&10_i64]).await;
                if fails {
                    took?;
                }
                t.done(())
            });
            let ended = hold(1).executor().commit(call).await.unwrap_err();
            assert_not_applied(&ended);
            assert_eq!(bank.cents(), 100, "{end}");
        }
    }
    // A procedure that nobody sees through: the last statement does.
    bank.psql("CREATE FUNCTION forget() RETURNS void LANGUAGE sql AS $$ SELECT set_config('leasehold.txn', '', true) $$");
    let call = fence.transaction(async |t| {
        t.execute("SELECT forget()", &[]).await?;
        t.done(())
    });
    let ended = hold(1).executor().commit(call).await.unwrap_err();
    assert!(matches!(ended, RunError::InDoubt { .. }), "{ended:?}");
}

#[tokio::test]
async fn a_savepoint_and_a_prepared_statement_are_the_works_own_however_they_are_written() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    for back in [
        "ROLLBACK TO a",
        "ROLLBACK  TO SAVEPOINT a",
        "-- the failure\nROLLBACK\n    TO\tSAVEPOINT a",
        "rollback /* undo /* it */ */ work -- all\n to a",
    ] {
        let before = bank.cents();
        let call = fence.transaction(async move |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            t.execute("SAVEPOINT a", &[]).await?;
            let _ = t.execute("SELECT 1 / 0", &[]).await;
            t.execute(back, &[]).await?;
            t.done(())
        });
        let done = hold(1).executor().commit(call).await.unwrap();
        assert_eq!(
            (done.proof, bank.cents()),
            (CommitProof::Fenced, before - 10)
        );
    }
    for prepare in [
        "PREPARE p AS SELECT 1",
        "PREPARE transaction(int) AS SELECT $1",
    ] {
        let call = fence.transaction(async move |t| {
            t.execute(prepare, &[]).await?;
            t.done(())
        });
        let done = hold(1).executor().commit(call).await.unwrap();
        assert_eq!(done.proof, CommitProof::Fenced);
    }
}

/// The work's connections are its own: those that a run left open are closed, not used again.
#[tokio::test]
async fn a_dropped_run_leaves_no_transaction_behind() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let (entered, in_work) = tokio::sync::oneshot::channel();
    let call = fence.transaction::<(), _, _>(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        entered.send(()).unwrap();
        std::future::pending().await
    });
    let run = tokio::spawn(async move { hold(1).executor().commit(call).await });
    in_work.await.unwrap();
    run.abort();
    let _ = run.await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()";
    crate::world::until("the server has rolled it back", || bank.psql(open) == "0").await;
    assert_eq!(bank.cents(), 100);
}
