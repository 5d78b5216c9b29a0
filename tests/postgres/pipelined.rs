//! Work whose first statement goes with the fence's.

use leasehold::RunError;
use leasehold::fence::Fence;
use leasehold::postgres::{PgFence, tokio_postgres};
use leasehold::run::CommitProof;
use tokio_postgres::types::Type;

use crate::world::{Bank, TAKE, assert_not_applied, hold, key, take_ten, token, until};

const BLOCK: &str = "BEGIN; SELECT FROM leasehold.fence FOR UPDATE";

/// A run whose `enter` waits, and whether its work has begun.
async fn begins_while_it_enters(bank: &Bank, fence: PgFence) -> bool {
    fence.raise(&key("a"), token(1)).await.unwrap();
    let blocker = bank.connect().await;
    blocker.batch_execute(BLOCK).await.unwrap();
    let (begun, mut begins) = tokio::sync::oneshot::channel();
    let call = fence.transaction(async move |t| {
        begun.send(()).unwrap();
        let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
        t.done(left)
    });
    let run = tokio::spawn(async move { hold(1).executor().commit(call).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold.enter%' AND datname = current_database()";
    until("it waits", || bank.psql(waits) == "1").await;
    let has_begun = begins.try_recv().is_ok();
    blocker.batch_execute("ROLLBACK").await.unwrap();
    let done = run.await.unwrap().unwrap();
    assert_eq!(done.proof, CommitProof::Fenced);
    has_begun
}

#[tokio::test]
async fn work_begins_behind_the_fence_and_where_it_is_pipelined_beside_it() {
    let bank = Bank::open().await;
    assert!(!begins_while_it_enters(&bank, bank.fence().await).await);
    assert!(begins_while_it_enters(&bank, bank.fence().await.pipelined()).await);
    assert_eq!(bank.cents(), 80);
}

#[tokio::test]
async fn no_statement_of_a_former_holder_is_executed() {
    let bank = Bank::open().await;
    let fence = bank.fence().await.pipelined();
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
    // Nothing is prepared first, so this goes at the first poll, and still behind the fence:
    // outside of its transaction the server would refuse it.
    let call = fence.transaction(async |t| {
        t.execute_typed(TAKE, &[(&10_i64, Type::INT8)]).await?;
        t.done(())
    });
    hold(1).executor().commit(call).await.unwrap();
    fence.raise(&key("a"), token(2)).await.unwrap();
    for _ in 0..3 {
        let refused = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
        assert!(
            matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == token(2)),
            "{refused:?}"
        );
    }
    // Whoever swallows the errors of its statements commits nothing.
    let call = fence.transaction(async |t| {
        let _ = t.execute_typed(TAKE, &[(&10_i64, Type::INT8)]).await;
        t.done(())
    });
    let refused = hold(1).executor().commit(call).await.unwrap_err();
    assert!(matches!(refused, RunError::Fenced { .. }), "{refused:?}");
    // And a work without a statement.
    let call = fence.transaction(async |t| t.done(()));
    let refused = hold(1).executor().commit(call).await.unwrap_err();
    assert!(matches!(refused, RunError::Fenced { .. }), "{refused:?}");
    assert_eq!(bank.cents(), 80);
}

#[tokio::test]
async fn work_that_would_end_a_transaction_that_was_refused_is_fenced() {
    let bank = Bank::open().await;
    let fence = bank.fence().await.pipelined();
    fence.raise(&key("a"), token(2)).await.unwrap();
    let call = fence.transaction(async |t| {
        let _ = t.execute("ROLLBACK", &[]).await;
        let _ = t.execute(TAKE, &[&10_i64]).await;
        t.done(())
    });
    let ended = hold(1).executor().commit(call).await.unwrap_err();
    assert!(matches!(ended, RunError::Fenced { .. }), "{ended:?}");
    assert_eq!(bank.cents(), 100);
}

#[tokio::test]
async fn what_is_pipelined_changes_nothing_outside_of_its_transaction() {
    let bank = Bank::open().await;
    let fence = bank.fence().await.pipelined();
    let call = fence.transaction(async |t| {
        let _ = t.execute_typed("ROLLBACK", &[]).await;
        let _ = t.execute_typed(TAKE, &[(&10_i64, Type::INT8)]).await;
        t.done(())
    });
    let ended = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&ended);
    assert_eq!(bank.cents(), 100);
}

/// A cancelled `BEGIN` leaves no transaction for the statements behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_is_executed_outside_of_a_transaction_whose_begin_was_cancelled() {
    const RUNS: i32 = 400;
    let bank = Bank::open().await;
    bank.psql("CREATE TABLE done (run int PRIMARY KEY)");
    let fence = bank.fence().await.pipelined();
    let operator = bank.connect().await;
    let cancelling = tokio::spawn(async move {
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold fence' AND datname = current_database()";
        while operator.simple_query(cancel).await.is_ok() {}
    });
    let mut not_applied = Vec::new();
    for run in 0..RUNS {
        let call = fence.transaction(async move |t| {
            let insert = "INSERT INTO done VALUES ($1)";
            t.execute_typed(insert, &[(&run, Type::INT4)]).await?;
            t.done(())
        });
        if let Err(RunError::RolledBack { .. }) = hold(1).executor().commit(call).await {
            not_applied.push(run.to_string());
        }
    }
    cancelling.abort();
    let there = bank.psql("SELECT run FROM done");
    let there: Vec<&str> = there.lines().collect();
    let wrong: Vec<_> = (not_applied.iter())
        .filter(|run| there.contains(&run.as_str()))
        .collect();
    assert!(wrong.is_empty(), "rolled back and there: {wrong:?}");
}
