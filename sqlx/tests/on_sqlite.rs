//! The fence in a SQLite file, over sqlx.
#![cfg(feature = "sqlite")]

mod kit;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kit::{Bank, Committing, Work, assert_rolled_back, doubt, key, take, take_after, token};
use leasehold::fence::sql::sqlite;
use leasehold::fence::{Fence, Resolve};
use leasehold::run::{CommitPermit, Doubt, Resolution};
use leasehold::{BoxError, ErrorKind};
use leasehold_sqlx::{Once, SqlxFence};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Acquire, Sqlite, SqlitePool, Transaction};

struct SqliteBank {
    folder: PathBuf,
    pool: SqlitePool,
    fence: SqlxFence<Sqlite>,
}

impl Drop for SqliteBank {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const TAKE: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1 RETURNING cents";

async fn done(tx: &mut Transaction<'_, Sqlite>, work: Work) -> Result<i64, BoxError> {
    if let Work::Once(name) = work
        && !tx.once(name, Duration::from_secs(60)).await?
    {
        return Ok(-1);
    }
    let left: i64 = sqlx::query_scalar(TAKE).fetch_one(&mut **tx).await?;
    match work {
        Work::Take | Work::Once(_) => {}
        Work::Refuse => return Err("refused".into()),
        Work::Fail { is_swallowed } => {
            let twice = sqlx::query("INSERT INTO account VALUES (1, 0)");
            let failed = twice.execute(&mut **tx).await;
            if !is_swallowed {
                failed?;
            }
        }
        Work::End(statement) => {
            let _ = sqlx::query(statement).execute(&mut **tx).await;
            let _ = sqlx::query(TAKE).execute(&mut **tx).await;
        }
        Work::Stop(millis) => kit::stop(millis),
        Work::Leak { is_refused } => {
            std::mem::forget(tx.begin().await?);
            if is_refused {
                return Err("refused".into());
            }
        }
    }
    Ok(left)
}

impl Bank for SqliteBank {
    type Fence = SqlxFence<Sqlite>;

    const IS_ASKED_AFTER_THE_WORK: bool = false;

    fn fence(&self) -> &Self::Fence {
        &self.fence
    }

    fn commit(&self, work: Work) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send> {
        Box::new(self.fence.transaction(move |tx| Box::pin(done(tx, work))))
    }

    fn cents(&self) -> BoxFuture<'_, i64> {
        Box::pin(async {
            let cents = sqlx::query_scalar("SELECT cents FROM account WHERE id = 1");
            cents.fetch_one(&self.pool).await.expect("the account")
        })
    }
}

async fn bank(name: &str, connections: u32) -> SqliteBank {
    let folder = std::env::temp_dir().join(format!("leasehold-sqlx-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let options = SqliteConnectOptions::new()
        .filename(folder.join("bank.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(1));
    let pool = SqlitePoolOptions::new().max_connections(connections);
    let pool = pool.connect_with(options).await.expect("a file");
    let fence = SqlxFence::new(pool.clone()).expect("clocks");
    for _ in 0..2 {
        fence.create_schema().await.expect("it may be run again");
    }
    let table = "CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL); INSERT INTO account VALUES (1, 1000)";
    let table = sqlx::raw_sql(table).execute(&pool).await;
    table.expect("a table");
    SqliteBank {
        folder,
        pool,
        fence,
    }
}

#[tokio::test]
async fn every_case_of_a_fence_holds() {
    kit::every_case(&bank("cases", 4).await).await;
}

#[tokio::test]
async fn every_case_of_a_fence_holds_with_one_connection() {
    kit::every_case(&bank("one", 1).await).await;
}

#[tokio::test]
async fn work_that_ends_its_transaction_changes_nothing_and_is_rolled_back() {
    let bank = bank("ends", 1).await;
    for end in [
        "COMMIT",
        "END",
        "ROLLBACK",
        "COMMIT; BEGIN",
        "ROLLBACK; BEGIN IMMEDIATE",
        "ROLLBACK; BEGIN; INSERT INTO account VALUES (2, 2); COMMIT",
    ] {
        let ended = take(&bank, "a", 1, Work::End(end)).await;
        assert_rolled_back(&ended);
        assert_eq!(bank.cents().await, 1000, "{end}");
    }
    let rows = sqlx::query_scalar("SELECT count(*) FROM account");
    let rows: i64 = rows.fetch_one(&bank.pool).await.expect("rows");
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn the_hook_of_a_run_is_not_on_the_connection_after_it() {
    let bank = bank("hook", 1).await;
    for work in [
        Work::Take,
        Work::Refuse,
        Work::End("COMMIT"),
        Work::Leak { is_refused: false },
        Work::Leak { is_refused: true },
    ] {
        let _ = take(&bank, "a", 1, work).await;
        let plain = "UPDATE account SET cents = cents WHERE id = 1";
        let plain = sqlx::query(plain).execute(&bank.pool).await;
        assert_eq!(plain.expect("no fence").rows_affected(), 1, "{work:?}");
    }
}

#[tokio::test]
async fn nobody_raises_the_fence_while_a_transaction_that_entered_is_open() {
    let bank = bank("open", 4).await;
    let mut open = bank.pool.begin_with(sqlite::BEGIN).await.expect("begun");
    let busy = bank.fence.raise(&key("a"), token(2)).await;
    let busy = busy.expect_err("it is open");
    assert_eq!(busy.kind(), ErrorKind::Unavailable, "{busy}");
    sqlx::query(TAKE).execute(&mut *open).await.expect("work");
    open.commit().await.expect("committed");
    let raised = bank.fence.raise(&key("a"), token(2)).await;
    raised.expect("it is over");
}

#[tokio::test]
async fn names_are_deleted_after_seven_days_and_what_they_named_is_not_known_any_more() {
    let bank = bank("old", 4).await;
    take(&bank, "a", 1, Work::Take).await.expect("applied");
    let mut named = None;
    let done = take_after(&bank, "a", 1, Work::Take, async |permit| {
        named = Some(doubt(permit));
    });
    done.await.expect("applied");
    let named = named.expect("a permit");
    bank.fence.raise(&key("a"), token(2)).await.expect("newer");
    let resolution = bank.fence.resolve(&named).await.expect("it is kept");
    assert_eq!(resolution, Resolution::Applied);

    // As if eight days went by: the names begin with the time.
    let days = 8 * 24 * 60 * 60 * 1000;
    let text = named.txn_id.to_string();
    let made_at = i64::from_str_radix(&text[..12], 16).expect("a time");
    let old = format!("{:012x}{}", made_at - days, &text[12..]);
    let age = "UPDATE leasehold_txn SET txn_id = ?1 WHERE txn_id = ?2";
    let age = sqlx::query(age).bind(&old).bind(&text);
    age.execute(&bank.pool).await.expect("older");
    bank.fence.raise(&key("a"), token(3)).await.expect("newer");
    let names = sqlx::query_scalar("SELECT count(*) FROM leasehold_txn");
    let names: i64 = names.fetch_one(&bank.pool).await.expect("names");
    assert_eq!(names, 1);
    let old = Doubt::new(named.locks.clone(), old.parse().expect("a name"));
    let unknown = bank.fence.resolve(&old).await.expect_err("it is deleted");
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    let name = sqlx::query(sqlite::NAME).bind(old.txn_id.to_string());
    name.execute(&bank.pool).await.expect_err("a late copy");
    take(&bank, "a", 3, Work::Take).await.expect("applied");
}

#[tokio::test]
async fn a_name_is_free_again_when_its_time_is_over_and_deleted_then() {
    let bank = bank("names", 4).await;
    let claimed = async |name: &str, keep| {
        let mut tx = bank.pool.begin().await.expect("begun");
        let is_new = tx.once(name, Duration::from_secs(keep)).await;
        tx.commit().await.expect("committed");
        is_new.expect("a claim")
    };
    let now = "SELECT (julianday('now') - 2440587.5) * 86400.0";
    let now = sqlx::query_scalar::<_, f64>(now).fetch_one(&bank.pool);
    let now = now.await.expect("the time");
    assert!(claimed("a@1", 60).await);
    let until = "SELECT CAST(until AS REAL) FROM leasehold_once WHERE name = 'a@1'";
    let until = sqlx::query_scalar::<_, f64>(until).fetch_one(&bank.pool);
    assert!(
        until.await.expect("a row") >= now + 60.0,
        "no less than asked"
    );
    assert!(!claimed("a@1", 60).await, "it was done");
    assert!(claimed("a@2", 0).await, "another name");
    assert!(claimed("a@2", 0).await, "its time is over");
    // A raise sweeps.
    let raised = bank.fence.raise(&key("a"), token(1)).await;
    raised.expect("a raise");
    let left = sqlx::query_scalar("SELECT name FROM leasehold_once").fetch_all(&bank.pool);
    let left: Vec<String> = left.await.expect("names");
    assert_eq!(left, ["a@1"]);
}

/// A raise sweeps too, but a leader raises once.
#[tokio::test]
async fn old_names_are_deleted_under_one_long_hold() {
    let bank = bank("long", 4).await;
    bank.fence.raise(&key("a"), token(1)).await.expect("raised");
    let old = "INSERT INTO leasehold_txn (txn_id, applied) VALUES ('00000000000000000000000000000001', 1)";
    let old = sqlx::query(old).execute(&bank.pool).await;
    old.expect("a name");
    take(&bank, "a", 1, Work::Take).await.expect("applied");
    // In a task of its own.
    loop {
        let left =
            "SELECT count(*) FROM leasehold_txn WHERE txn_id = '00000000000000000000000000000001'";
        let left = sqlx::query_scalar::<_, i64>(left).fetch_one(&bank.pool);
        if let Ok(0) = left.await {
            return;
        }
        tokio::task::yield_now().await;
    }
}
