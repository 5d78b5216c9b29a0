//! A run under several keys: every fence is entered, under one name.

use leasehold::fence::Fence;
use leasehold::run::CommitProof;
use leasehold::{FencingToken, LockManager, RunError};

use crate::world::{Bank, TAKE, key, token, until};

#[tokio::test]
async fn a_run_under_several_keys_enters_every_fence_under_one_name() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let locks = LockManager::connect("memory:").await.unwrap();
    let guard = locks
        .lock_all(["b", "a"])
        .fence(fence.clone())
        .acquire()
        .await
        .unwrap();
    let executor = guard.executor();
    let take = || {
        fence.transaction(async |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            t.done(())
        })
    };
    assert_eq!(
        executor.commit(take()).await.unwrap().proof,
        CommitProof::Fenced
    );
    assert_eq!(
        bank.psql("SELECT keys, applied FROM leasehold.txn"),
        "{a,b}|t"
    );
    // A newer holder of either key shuts the run out.
    let newer = FencingToken::new(guard.token("a").unwrap().number() + 1).unwrap();
    fence.raise(&key("a"), newer).await.unwrap();
    let refused = executor.commit(take()).await.unwrap_err();
    assert!(
        matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == newer),
        "{refused:?}"
    );
    assert_eq!(bank.cents(), 90);
    let _ = guard.release().await;
}

/// Both wait for the first key and hold no other one, so neither waits for the other.
#[tokio::test]
async fn transactions_over_crossed_keys_enter_in_the_order_of_the_keys() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    for raised in ["a", "b"] {
        fence.raise(&key(raised), token(1)).await.unwrap();
    }
    let blocker = bank.connect().await;
    blocker
        .batch_execute("BEGIN; SELECT FROM leasehold.fence WHERE key = 'a' FOR UPDATE")
        .await
        .unwrap();
    let mut crossed = Vec::new();
    for keys in ["b,a", "a,b"] {
        let client = bank.connect().await;
        crossed.push(tokio::spawn(async move {
            let enter = format!(
                "BEGIN; SELECT leasehold.enter('{{{keys}}}', '{{1,1}}', gen_random_uuid(), 60000); ROLLBACK"
            );
            client.batch_execute(&enter).await
        }));
    }
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold.enter%' AND pid <> pg_backend_pid()";
    until("both wait", || bank.psql(waiting) == "2").await;
    bank.psql("SELECT FROM leasehold.fence WHERE key = 'b' FOR UPDATE NOWAIT");
    blocker.batch_execute("ROLLBACK").await.unwrap();
    for entered in crossed {
        entered.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn keys_without_tokens_and_no_keys_at_all_enter_nothing() {
    let bank = Bank::open().await;
    bank.fence().await.raise(&key("a"), token(1)).await.unwrap();
    let client = bank.connect().await;
    for (keys, tokens) in [("a", ""), ("a", "NULL"), ("", ""), ("a,b", "1")] {
        let enter = format!(
            "SELECT leasehold.enter('{{{keys}}}', '{{{tokens}}}', gen_random_uuid(), 60000)"
        );
        let refused = client.batch_execute(&enter).await;
        assert!(refused.is_err(), "{keys} {tokens}");
    }
    assert_eq!(bank.psql("SELECT count(*) FROM leasehold.txn"), "0");
}

/// A word of SQL is a key as any other.
#[tokio::test]
async fn a_key_that_is_called_null_is_fenced() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let locks = LockManager::connect("memory:").await.unwrap();
    let guard = locks.lock_all(["NULL", "null"]).fence(fence.clone());
    let guard = guard.acquire().await.unwrap();
    let take = fence.transaction(async |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        t.done(())
    });
    guard.executor().commit(take).await.unwrap();
    let entered = bank.psql("SELECT unnest(keys) FROM leasehold.txn");
    assert_eq!(entered, "NULL\nnull");
}
