//! A handle of a transaction whose run is over sends nothing.

use std::sync::Arc;

use leasehold::fence::Fence;
use leasehold::postgres::{PgFence, PgTransaction};
use leasehold::run::{CommitProof, EffectError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::world::{Bank, TAKE, assert_not_applied, hold, key, take_ten, token};

const FAILS: &str = "INSERT INTO account VALUES (1, 0)";

/// What became of the statement that a run left behind: how many rows it changed.
type Late = JoinHandle<Option<u64>>;

/// A run whose work shares its transaction with a task, and whose own statement fails. The task
/// sends `statement` when the test says so.
async fn leaves_a_task(fence: &PgFence, statement: &'static str) -> (oneshot::Sender<()>, Late) {
    let (go, told) = oneshot::channel();
    let (task, mut tasks) = mpsc::unbounded_channel();
    let call = fence.transaction::<(), _, _>(async move |t| {
        let t = Arc::new(t);
        let shared = Arc::clone(&t);
        let late = tokio::spawn(async move {
            told.await.ok()?;
            shared.execute(statement, &[]).await.ok()
        });
        task.send(late).unwrap();
        t.execute(FAILS, &[]).await?;
        unreachable!()
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
    (go, tasks.recv().await.unwrap())
}

const LATE: &str = "UPDATE account SET cents = 0 WHERE id = 1";

async fn fences(bank: &Bank) -> [PgFence; 2] {
    let fences = [bank.fence().await, bank.fence().await.pipelined()];
    for fence in &fences {
        // Its connections are kept.
        take_ten(&hold(1).executor(), fence).await.unwrap();
    }
    bank.psql("UPDATE account SET cents = 100");
    fences
}

#[tokio::test]
async fn a_statement_of_a_rolled_back_run_is_not_executed_after_it() {
    let bank = Bank::open().await;
    for fence in fences(&bank).await {
        let (go, late) = leaves_a_task(&fence, LATE).await;
        go.send(()).unwrap();
        assert_eq!(late.await.unwrap(), None);
        assert_eq!(bank.cents(), 100);
    }
}

#[tokio::test]
async fn a_statement_of_a_rolled_back_run_is_not_executed_in_the_transaction_of_another() {
    let bank = Bank::open().await;
    for fence in fences(&bank).await {
        for end in [LATE, "COMMIT", "ROLLBACK"] {
            let (go, late) = leaves_a_task(&fence, end).await;
            let call = fence.transaction(async move |t| {
                t.execute("SELECT 1", &[]).await?;
                go.send(()).unwrap();
                t.done(late.await.unwrap())
            });
            let done = hold(1).executor().commit(call).await.unwrap();
            assert_eq!((done.value, done.proof), (None, CommitProof::Fenced));
            assert_eq!(bank.cents(), 100);
        }
    }
}

#[tokio::test]
async fn a_transaction_that_is_kept_after_its_run_is_dead_and_its_connection_is_not_used_again() {
    let bank = Bank::open().await;
    for fence in fences(&bank).await {
        let (keep, mut kept) = mpsc::unbounded_channel::<PgTransaction>();
        let other = bank.connect().await;
        let call = fence.transaction::<(), _, _>(async move |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            keep.send(t).unwrap();
            // The error of another connection says nothing of this transaction.
            other.execute("SELECT 1 / 0", &[]).await?;
            unreachable!()
        });
        let stopped = hold(1).executor().commit(call).await.unwrap_err();
        assert_not_applied(&stopped);
        let kept = kept.recv().await.unwrap();
        for statement in ["COMMIT", LATE] {
            assert!(kept.execute(statement, &[]).await.is_err());
        }
        assert_eq!(bank.cents(), 100);
        fence.raise(&key("a"), token(1)).await.unwrap();
        assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
        bank.psql("UPDATE account SET cents = 100");
    }
}

#[tokio::test]
async fn a_run_is_not_committed_by_the_end_of_another_transaction() {
    let bank = Bank::open().await;
    for fence in fences(&bank).await {
        let (keep, mut kept) = mpsc::unbounded_channel::<PgTransaction>();
        let keep_it = keep.clone();
        let call = fence.transaction::<(), _, _>(async move |t| {
            keep_it.send(t).unwrap();
            std::future::pending().await
        });
        let first = tokio::spawn(async move { hold(1).executor().commit(call).await });
        let theirs = kept.recv().await.unwrap();
        let call = fence.transaction(async move |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            keep.send(t).unwrap();
            theirs.done(())
        });
        let swapped = hold(1).executor().commit(call).await.unwrap_err();
        assert_not_applied(&swapped);
        let ours = kept.recv().await.unwrap();
        assert!(ours.execute("COMMIT", &[]).await.is_err());
        first.abort();
        assert_eq!(bank.cents(), 100);
    }
}

/// The call of a transaction may be made by a task of its own.
#[tokio::test]
async fn a_transaction_that_begins_after_its_run_sends_nothing() {
    let bank = Bank::open().await;
    for fence in fences(&bank).await {
        let (keep, mut kept) = mpsc::unbounded_channel();
        let hold = hold(1);
        let executor = hold.executor();
        let stopped = executor.guarded_async(async move |tx| {
            tx.commit_with(async move |permit| {
                keep.send(permit).unwrap();
                Err::<(), _>(EffectError::not_applied("not today"))
            });
            Ok(())
        });
        assert_not_applied(&stopped.await.unwrap_err());
        let late = fence.transaction(async |t| {
            t.execute(LATE, &[]).await?;
            t.done(())
        });
        let late = late(kept.recv().await.unwrap()).await;
        assert!(matches!(late, Err(EffectError::Unknown(_))));
        assert_eq!(bank.cents(), 100);
    }
}

#[tokio::test]
async fn a_transaction_that_begins_after_its_run_was_dropped_sends_nothing() {
    let bank = Bank::open().await;
    for fence in fences(&bank).await {
        let (keep, mut kept) = mpsc::unbounded_channel();
        let hold = hold(1);
        let executor = hold.executor();
        let dropped = tokio::spawn(async move {
            let run = executor.guarded_async(async move |tx| {
                tx.commit_with(async move |permit| {
                    keep.send(permit).unwrap();
                    std::future::pending::<Result<(), EffectError>>().await
                });
                Ok(())
            });
            run.await.map(drop)
        });
        let permit = kept.recv().await.unwrap();
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        let late = fence.transaction(async |t| {
            t.execute(LATE, &[]).await?;
            t.done(())
        });
        assert!(matches!(late(permit).await, Err(EffectError::Unknown(_))));
        assert_eq!(bank.cents(), 100);
    }
}
