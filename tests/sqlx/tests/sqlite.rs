//! The statements for SQLite, run for real.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::run::{CommitPermit, CommitProof, Doubt, Resolution};
use leasehold::fence::{Fence, Resolve};
use leasehold::testing::TestHold;
use leasehold::{ErrorKind, FencingToken, Key, RunError, Settings};
use leasehold_sqlx::sqlite::SqliteFence;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::sync::{Notify, oneshot};

fn key() -> Key {
    "a".parse().expect("a key")
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token")
}

fn hold(number: u64) -> TestHold {
    let clock = Clock::system().expect("clocks");
    let ttl = Duration::from_secs(60);
    TestHold::new(clock, &Settings::default(), key(), token(number), ttl)
}

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn bank(name: &str) -> (File, SqlitePool, SqliteFence) {
    let folder = std::env::temp_dir().join(format!("leasehold-sqlx-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let options = SqliteConnectOptions::new()
        .filename(folder.join("bank.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_millis(50));
    let pool = SqlitePoolOptions::new().connect_with(options).await;
    let pool = pool.expect("a file");
    let fence = SqliteFence::create(pool.clone()).await.expect("tables");
    let again = SqliteFence::create(pool.clone()).await;
    again.expect("the schema may be run again");
    let table = "CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0)); INSERT INTO account VALUES (1, 100)";
    let table = sqlx::raw_sql(table).execute(&pool).await;
    table.expect("a table");
    (File(folder), pool, fence)
}

async fn cents(pool: &SqlitePool) -> i64 {
    let cents = sqlx::query_scalar("SELECT cents FROM account WHERE id = 1");
    cents.fetch_one(pool).await.expect("the account")
}

/// Takes an amount under a token, after `before` has seen the permit.
async fn take(
    fence: &SqliteFence,
    number: u64,
    amount: i64,
    before: impl AsyncFnOnce(&CommitPermit),
) -> Result<CommitProof, RunError<()>> {
    let hold = hold(number);
    let permits = Mutex::new(None);
    // The permit is taken out of one run, so that the test can act between it and the commit.
    let executor = hold.executor();
    let taken = executor.guarded_async(async |tx| {
        let (sender, receiver) = oneshot::channel();
        let fence = fence.clone();
        let go = Arc::new(Notify::new());
        *permits.lock().expect("one thread") = Some((receiver, Arc::clone(&go)));
        tx.commit_with(async move |permit: CommitPermit| {
            let _ = sender.send(permit.clone());
            go.notified().await;
            let committed = fence.commit(permit, move |sql| {
                Box::pin(async move {
                    let take = sqlx::query("UPDATE account SET cents = cents - ?1 WHERE id = 1");
                    take.bind(amount).execute(sql).await.map(drop)
                })
            });
            committed.await
        });
        Ok(())
    });
    let between = async {
        loop {
            let found = permits.lock().expect("one thread").take();
            if let Some((receiver, go)) = found {
                if let Ok(permit) = receiver.await {
                    before(&permit).await;
                    go.notify_one();
                }
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (done, ()) = futures_util::future::join(taken, between).await;
    done.map(|done| done.proof)
}

#[tokio::test]
async fn a_commit_is_applied_under_its_name_and_an_older_token_is_fenced() {
    let (_file, pool, fence) = bank("fenced").await;
    let done = take(&fence, 1, 10, async |_| ()).await;
    assert_eq!(done.expect("applied"), CommitProof::Fenced);
    fence.raise(&key(), token(3)).await.expect("newer");
    fence.raise(&key(), token(3)).await.expect("the same");
    let older = fence.raise(&key(), token(2)).await.expect_err("older");
    assert!(matches!(older.kind(), ErrorKind::Lost(_)), "{older}");
    let refused = take(&fence, 2, 10, async |_| ()).await;
    assert!(
        matches!(&refused, Err(RunError::Fenced { seen: Some(seen), .. }) if *seen == token(3)),
        "{refused:?}"
    );
    assert_eq!(cents(&pool).await, 90);
    let names = sqlx::query_scalar("SELECT count(*) FROM leasehold_txn WHERE applied = 1");
    let names: i64 = names.fetch_one(&pool).await.expect("names");
    assert_eq!(names, 1);
}

#[tokio::test]
async fn a_newer_holder_that_comes_between_the_check_and_the_commit_shuts_it_out() {
    let (_file, pool, fence) = bank("between").await;
    let refused = take(&fence, 1, 10, async |_| {
        fence.raise(&key(), token(2)).await.expect("newer");
    });
    let refused = refused.await;
    assert!(
        matches!(&refused, Err(RunError::Fenced { .. })),
        "{refused:?}"
    );
    assert_eq!(cents(&pool).await, 100);
}

#[tokio::test]
async fn nobody_raises_the_fence_while_a_transaction_that_entered_is_open() {
    let (_file, pool, fence) = bank("open").await;
    let mut open = pool
        .begin_with(leasehold::fence::sql::sqlite::BEGIN)
        .await
        .expect("begun");
    let busy = fence.raise(&key(), token(2)).await.expect_err("it is open");
    assert_eq!(busy.kind(), ErrorKind::Unavailable, "{busy}");
    let take = "UPDATE account SET cents = 1 WHERE id = 1";
    sqlx::query(take).execute(&mut *open).await.expect("work");
    open.commit().await.expect("committed");
    fence.raise(&key(), token(2)).await.expect("it is over");
}

#[tokio::test]
async fn a_statement_that_fails_leaves_neither_changes_nor_a_name() {
    let (_file, pool, fence) = bank("failed").await;
    let failed = take(&fence, 1, 200, async |_| ()).await;
    assert!(
        matches!(&failed, Err(RunError::RolledBack { .. })),
        "{failed:?}"
    );
    assert_eq!(cents(&pool).await, 100);
    let names = sqlx::query_scalar("SELECT count(*) FROM leasehold_txn");
    let names: i64 = names.fetch_one(&pool).await.expect("names");
    assert_eq!(names, 0);
}

#[tokio::test]
async fn a_commit_that_arrives_after_it_was_resolved_as_void_is_refused() {
    let (_file, pool, fence) = bank("void").await;
    let late = take(&fence, 1, 10, async |permit| {
        let doubt = Doubt::new(permit.locks().to_vec(), permit.txn_id);
        for _ in 0..2 {
            let resolution = fence.resolve(&doubt).await.expect("an answer");
            assert_eq!(resolution, Resolution::NotApplied);
        }
    });
    let late = late.await;
    assert!(
        matches!(&late, Err(RunError::RolledBack { .. })),
        "{late:?}"
    );
    assert_eq!(cents(&pool).await, 100);
}

#[tokio::test]
async fn a_commit_that_was_applied_is_resolved_as_applied_again_and_again() {
    let (_file, _pool, fence) = bank("applied").await;
    let mut doubt = None;
    let done = take(&fence, 1, 10, async |permit| {
        doubt = Some(Doubt::new(permit.locks().to_vec(), permit.txn_id));
    });
    done.await.expect("applied");
    let doubt = doubt.expect("a permit");
    for _ in 0..2 {
        let resolution = fence.resolve(&doubt).await.expect("an answer");
        assert_eq!(resolution, Resolution::Applied);
    }
}

#[tokio::test]
async fn names_are_deleted_after_seven_days_and_what_they_named_is_not_known_any_more() {
    let (_file, pool, fence) = bank("old").await;
    let done = take(&fence, 1, 10, async |_| ()).await;
    done.expect("applied");
    let mut doubt = None;
    let done = take(&fence, 1, 10, async |permit| {
        doubt = Some(Doubt::new(permit.locks().to_vec(), permit.txn_id));
    });
    done.await.expect("applied");
    let doubt = doubt.expect("a permit");
    fence.raise(&key(), token(2)).await.expect("newer");
    let resolution = fence.resolve(&doubt).await.expect("it is kept");
    assert_eq!(resolution, Resolution::Applied);

    // As if eight days went by: the names begin with the time.
    let days = 8 * 24 * 60 * 60 * 1000;
    let text = doubt.txn_id.to_string();
    let made_at = i64::from_str_radix(&text[..12], 16).expect("a time");
    let old = format!("{:012x}{}", made_at - days, &text[12..]);
    let age = "UPDATE leasehold_txn SET txn_id = ?1 WHERE txn_id = ?2";
    let age = sqlx::query(age).bind(&old).bind(&text);
    age.execute(&pool).await.expect("older");
    fence.raise(&key(), token(3)).await.expect("newer");
    let names = sqlx::query_scalar("SELECT count(*) FROM leasehold_txn");
    let names: i64 = names.fetch_one(&pool).await.expect("names");
    assert_eq!(names, 1);
    let old = Doubt::new(doubt.locks.clone(), old.parse().expect("a name"));
    let unknown = fence.resolve(&old).await.expect_err("it is deleted");
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    let name = sqlx::query(leasehold::fence::sql::sqlite::NAME).bind(old.txn_id.to_string());
    name.execute(&pool).await.expect_err("a late copy");
    take(&fence, 3, 10, async |_| ()).await.expect("applied");
}

/// How many rows claiming a name changes.
async fn claimed(pool: &SqlitePool, name: &str, keep: i64) -> u64 {
    let once = sqlx::query(leasehold::fence::sql::sqlite::ONCE);
    let done = once.bind(name).bind(keep).execute(pool).await;
    done.expect("a claim").rows_affected()
}

#[tokio::test]
async fn a_name_is_claimed_once_until_its_time_is_over_and_deleted_then() {
    let (_file, pool, fence) = bank("once").await;
    assert_eq!(claimed(&pool, "a@1", 60).await, 1);
    assert_eq!(claimed(&pool, "a@1", 60).await, 0, "it was done");
    assert_eq!(claimed(&pool, "a@2", 0).await, 1, "another name");
    assert_eq!(claimed(&pool, "a@2", 0).await, 1, "its time is over");
    // A raise sweeps.
    fence.raise(&key(), token(1)).await.expect("a raise");
    let left = sqlx::query_scalar("SELECT name FROM leasehold_once").fetch_all(&pool);
    let left: Vec<String> = left.await.expect("names");
    assert_eq!(left, ["a@1"]);
}
