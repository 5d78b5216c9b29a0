//! A name that is claimed in the transaction of what is done once.

use std::time::Duration;

use leasehold::RunError;
use leasehold::postgres::PgFence;

use crate::world::{Bank, TAKE, assert_not_applied, hold, until};

const DAY: Duration = Duration::from_secs(86_400);

/// Takes ten unless it was done already; whether it was done now.
async fn take_once(
    fence: &PgFence,
    token: u64,
    name: &'static str,
    keep: Duration,
) -> Result<bool, RunError<bool>> {
    let call = fence.transaction(async move |t| {
        if !t.once(name, keep).await? {
            return t.done(false);
        }
        t.execute(TAKE, &[&10_i64]).await?;
        t.done(true)
    });
    let done = hold(token).executor().commit(call).await;
    done.map(|done| done.value)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_name_is_applied_once_whoever_repeats_it() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    assert!(take_once(&fence, 1, "a@1", DAY).await.unwrap());
    assert!(
        !take_once(&fence, 1, "a@1", DAY).await.unwrap(),
        "the same holder"
    );
    assert!(
        !take_once(&fence, 2, "a@1", DAY).await.unwrap(),
        "the next one"
    );
    assert!(
        take_once(&fence, 2, "a@2", DAY).await.unwrap(),
        "another name"
    );
    assert_eq!(bank.cents(), 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_whose_transaction_was_rolled_back_was_not_claimed() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let call = fence.transaction(async |t| {
        assert!(t.once("a@1", DAY).await?);
        t.execute(TAKE, &[&10_i64]).await?;
        t.execute("SELECT 1 / 0", &[]).await?;
        t.done(())
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
    assert!(take_once(&fence, 2, "a@1", DAY).await.unwrap());
    assert_eq!(bank.cents(), 90);
}

/// What a second transaction does whose name an open one has claimed, once that one has ended.
async fn beside_an_open_one(end: &str) -> (bool, i64) {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let open = bank.connect().await;
    let claim = "BEGIN; SELECT leasehold.once('a@1', 86400000)";
    open.batch_execute(claim).await.unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let ended = async {
        until("the second one waits", || bank.psql(waits).trim() == "1").await;
        open.batch_execute(end).await.unwrap();
    };
    let (done, ()) = tokio::join!(take_once(&fence, 1, "a@1", DAY), ended);
    (done.unwrap(), bank.cents())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_an_open_transaction_has_is_waited_for() {
    assert_eq!(beside_an_open_one("COMMIT").await, (false, 100));
    assert_eq!(beside_an_open_one("ROLLBACK").await, (true, 90));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_whose_time_is_over_is_free_and_then_deleted() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let over = "UPDATE leasehold.once SET until = now() - interval '1 second'";
    assert!(take_once(&fence, 1, "a@1", DAY).await.unwrap());
    bank.psql(over);
    assert!(take_once(&fence, 1, "a@1", DAY).await.unwrap());
    assert!(take_once(&fence, 1, "a@2", Duration::MAX).await.unwrap());
    bank.psql(&format!("{over} WHERE name = 'a@1'"));
    bank.psql("UPDATE leasehold.fence_meta SET swept_at = '-infinity'; SELECT leasehold.sweep()");
    assert_eq!(bank.psql("SELECT name FROM leasehold.once").trim(), "a@2");
}

/// The transaction began before the other one was committed, so it may not see its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_a_repeatable_read_may_not_see_is_an_error_and_then_done() {
    let bank = Bank::open().await;
    let role = "ALTER ROLE CURRENT_USER IN DATABASE %I SET default_transaction_isolation = 'repeatable read'";
    bank.psql(&format!(
        "DO $$ BEGIN EXECUTE format('{}', current_database()); END $$",
        role.replace('\'', "''")
    ));
    let fence = bank.fence().await;
    let other = bank.connect().await;
    let call = fence.transaction(async move |t| {
        let claim = "SELECT leasehold.once('a@1', 86400000)";
        other.batch_execute(claim).await?;
        t.once("a@1", DAY).await?;
        t.done(())
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
    assert!(!take_once(&fence, 1, "a@1", DAY).await.unwrap());
    assert_eq!(bank.cents(), 100);
}
