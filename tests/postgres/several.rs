//! A run under several keys: every fence is entered, under one name.

use leasehold::executor::CommitProof;
use leasehold::fence::Fence;
use leasehold::{FencingToken, LockManager, RunError};

use crate::world::{Bank, TAKE, key};

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

#[tokio::test]
async fn runs_over_the_same_keys_in_another_order_do_not_deadlock_in_the_fence() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    // Unraised: each enter raises both keys itself.
    for (keys, tokens) in [("b,a", "1,1"), ("a,b", "1,1")] {
        let enter = format!(
            "SELECT leasehold.enter('{{{keys}}}', '{{{tokens}}}', gen_random_uuid(), 60000)"
        );
        client.batch_execute(&enter).await.unwrap();
    }
    assert_eq!(
        bank.psql("SELECT key, token FROM leasehold.fence ORDER BY key"),
        "a|1\nb|1"
    );
}
