//! Names: of commits, and of what is done once. How long they are kept, and what is known then.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::fence::{Fence, Resolve};
use leasehold::run::{CommitPermit, Doubt, Resolution, TxnId};
use leasehold_sqlx::{Once, SqlxFence};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Executor, MySql};

use crate::kit::{Bank, LONG, Work, assert_rolled_back, doubt, hold, key, take, take_after, token};
use crate::{MyBank, call, pool, server};

/// Makes every name that is there one of years ago, and lets the next sweep be now.
const AGE: &str = "UPDATE leasehold_txn SET txn_id = CONCAT('000', SUBSTR(txn_id, 4)), \
    at = at - INTERVAL 8 DAY; UPDATE leasehold_meta SET swept_at = '1970-01-02'";
const OLD: &str = "SELECT COUNT(*) FROM leasehold_txn WHERE txn_id < '001'";

/// In the pool: a program for each question would take minutes where the answer never comes.
async fn old_names(bank: &MyBank) -> i64 {
    let old = sqlx::query_scalar(OLD).fetch_one(&bank.pool);
    old.await.expect("a count")
}

/// Whose next commit is its first, after which it sweeps.
fn fresh(bank: &MyBank) -> SqlxFence<MySql> {
    bank.fence.clone().wait(Duration::from_secs(5))
}

async fn sweeps(bank: &MyBank) {
    let executor = hold("sweeper", 1, LONG).executor();
    let done = executor.commit(call(&fresh(bank), Work::Take)).await;
    done.expect("applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_names_of_a_holder_that_stays_are_deleted_and_nothing_enters_under_them() {
    let bank = MyBank::open(4).await;
    let (mut named, mut late) = (None, None);
    let done = take_after(&bank, "a", 1, Work::Take, async |permit| {
        named = Some(doubt(permit));
    });
    done.await.expect("applied");
    let swept = "SELECT swept_at > '1971-01-01' FROM leasehold_meta";
    server::until("the first sweep", async || bank.sql(swept) == "1").await;
    bank.sql(AGE);
    sweeps(&bank).await;
    server::until("the name to go", async || old_names(&bank).await == 0).await;
    let named = named.expect("a permit");
    let old = format!("000{}", &named.txn_id.to_string()[3..]);
    let old: TxnId = old.parse().expect("a name");
    let unknown = bank
        .fence
        .resolve(&Doubt::new(named.locks.clone(), old))
        .await;
    let unknown = unknown.expect_err("it is deleted");
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    let before = bank.cents().await;
    // A copy that comes late.
    let copy = bank.commit(Work::Take);
    let executor = hold("a", 1, LONG).executor();
    let copied = executor.commit(async move |mut permit: CommitPermit| {
        permit.txn_id = old;
        copy(permit).await
    });
    assert_rolled_back(&copied.await.map(|done| (done.value, done.proof)));
    assert_eq!(bank.cents().await, before);
    // A name that is newer than those that were deleted, under the same token.
    let refused = take_after(&bank, "a", 1, Work::Refuse, async |permit| {
        late = Some(doubt(permit));
    });
    assert_rolled_back(&refused.await);
    let resolution = bank.fence.resolve(&late.expect("a permit")).await;
    assert_eq!(resolution.expect("known"), Resolution::NotApplied);
    take(&bank, "a", 1, Work::Take).await.expect("applied");
}

/// The same over connections that change no row without a key.
async fn careful(bank: MyBank) -> MyBank {
    let careful = MySqlPoolOptions::new().after_connect(|connection, _| {
        let set = connection.execute("SET SESSION sql_safe_updates = 1");
        Box::pin(async { set.await.map(drop) })
    });
    let url = bank.server.url("app", &bank.database);
    let pool = careful.connect(&url).await.expect("a server");
    MyBank {
        fence: SqlxFence::new(pool.clone()).expect("clocks"),
        pool,
        ..bank
    }
}

/// Up to 1,000 at once, and no hour between.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_deleted_as_fast_as_they_are_made() {
    let bank = careful(MyBank::open(4).await).await;
    bank.sql(
        "INSERT INTO leasehold_txn (txn_id, lock_key, token, state, until, conn, at) \
         SELECT LPAD(seq, 32, '0'), 'a', 1, 1, 0, 0, '2000-01-01' FROM seq_1_to_1500",
    );
    bank.fence.raise(&key("a"), token(2)).await.expect("newer");
    sweeps(&bank).await;
    server::until("a batch to go", async || old_names(&bank).await == 500).await;
    sweeps(&bank).await;
    server::until("the rest to go", async || old_names(&bank).await == 0).await;
    let largest = bank.sql("SELECT name + 0 FROM leasehold_swept WHERE lock_key = 'a'");
    assert_eq!(largest, "1500");
}

/// Somebody's transaction has an old name of what was done once: nothing waits long for it, and old
/// names of commits are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_does_not_wait_for_a_transaction_of_the_user() {
    let bank = MyBank::open(1).await;
    bank.sql(
        "INSERT INTO leasehold_once VALUES ('x', 0); \
         INSERT INTO leasehold_txn (txn_id, lock_key, token, state, until, conn, at) \
         VALUES (LPAD(1, 32, '0'), 'a', 1, 1, 0, 0, '2000-01-01')",
    );
    let other = pool(&bank.server.url("app", &bank.database), 1).await;
    let mut open = other.begin().await.expect("begun");
    let holds = open.execute("DELETE FROM leasehold_once WHERE name = 'x'");
    assert_eq!(holds.await.expect("a row").rows_affected(), 1);
    sweeps(&bank).await;
    server::until("the name to go", async || old_names(&bank).await == 0).await;
    // The one connection of the pool comes back, or another one.
    take(&bank, "a", 1, Work::Take).await.expect("applied");
    open.rollback().await.expect("rolled back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_kept_for_no_less_than_was_asked() {
    let bank = MyBank::open(1).await;
    let second = Duration::from_secs(1);
    for (now, is_new) in [(0.9, true), (1.8, false), (3.0, true)] {
        let mut tx = bank.pool.begin().await.expect("begun");
        let clock = format!("SET timestamp = {}", 1_700_000_000.0 + now);
        tx.execute(&*clock).await.expect("set");
        assert_eq!(
            tx.once("x", second).await.expect("a claim"),
            is_new,
            "{now}"
        );
        tx.commit().await.expect("committed");
    }
}

/// Without a strict `sql_mode` the server cuts it.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_too_long_is_refused() {
    let bank = MyBank::open(1).await;
    let mut tx = bank.pool.begin().await.expect("begun");
    tx.execute("SET SESSION sql_mode = ''").await.expect("set");
    let keep = Duration::from_secs(60);
    assert!(tx.once(&"x".repeat(1000), keep).await.expect("a claim"));
    let long = tx.once(&"x".repeat(1001), keep).await;
    long.expect_err("it is too long");
}
