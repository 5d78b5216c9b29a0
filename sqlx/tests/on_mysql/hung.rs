//! A client that hangs in its transaction: the next holder does not wait for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::run::Resolution;
use leasehold::{ErrorKind, RunError};
use leasehold_sqlx::SqlxFence;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Executor, MySql};

use crate::kit::{Bank, LONG, hold, key, token};
use crate::proxy::{Fate, Proxy};
use crate::{MyBank, TAKE, pool, server};

/// Of 5 s each.
const TRIES: u32 = 6;

/// A run that changes the account, sends a statement, and of which nothing arrives any more, not
/// even the end of its connection.
async fn hangs(bank: &MyBank, proxy: &Arc<Proxy>, statement: &'static str, ttl: Duration) {
    let url = server::url(proxy.port(), "app", &bank.database);
    let fence = SqlxFence::new(pool(&url, 1).await).expect("clocks");
    let holds_back = Arc::clone(proxy);
    let call = fence.transaction::<(), _>(move |tx| {
        Box::pin(async move {
            tx.execute(TAKE).await?;
            tx.execute(statement).await?;
            holds_back.all(Fate {
                hold_up: true,
                ..Fate::KIND
            });
            std::future::pending().await
        })
    });
    let run = hold("a", 1, ttl).executor().commit(call).await;
    let named = match &run {
        Err(in_doubt @ RunError::InDoubt { .. }) => in_doubt.doubt().expect("a doubt"),
        other => panic!("{other:?}"),
    };
    // The transaction is still open: it is ended, and only then it is known.
    let mut resolution = bank.fence.resolve(&named).await;
    for _ in 0..TRIES {
        match &resolution {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        resolution = bank.fence.resolve(&named).await;
    }
    assert_eq!(resolution.expect("it is ended"), Resolution::NotApplied);
}

/// Its own time-out is too long.
#[tokio::test(flavor = "multi_thread")]
async fn the_connection_of_a_holder_that_hangs_is_ended_by_whoever_waits_for_it() {
    let bank = MyBank::open(4).await;
    let proxy = Arc::new(Proxy::before(bank.server.port()));
    let long = "SET SESSION wait_timeout = 28800";
    hangs(&bank, &proxy, long, Duration::from_secs(2)).await;
    let raised = bank.fence.raise(&key("a"), token(2)).await;
    raised.expect("its transaction is over");
    proxy.all(Fate::KIND);
    assert_eq!(bank.cents().await, 1000);
}

/// Another user's connection cannot be ended: the server ends it by its time-out.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_ends_the_transaction_of_a_holder_that_hangs() {
    let bank = MyBank::open(4).await;
    bank.sql(&format!(
        "CREATE USER IF NOT EXISTS other@'127.0.0.1'; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON {}.* TO other@'127.0.0.1'",
        bank.database
    ));
    let other = pool(&bank.server.url("other", &bank.database), 2).await;
    let other = MyBank {
        fence: SqlxFence::new(other.clone()).expect("clocks"),
        pool: other,
        database: bank.database.clone(),
        server: Arc::clone(&bank.server),
    };
    let proxy = Arc::new(Proxy::before(bank.server.port()));
    hangs(&other, &proxy, "SELECT 1", Duration::from_secs(2)).await;
    let raised = other.fence.raise(&key("a"), token(2)).await;
    raised.expect("its transaction is over");
    proxy.all(Fate::KIND);
    assert_eq!(bank.cents().await, 1000);
}

/// Whoever may write the row of a commit writes the number of any connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_privileged_user_ends_no_connection_of_another_user() {
    let bank = MyBank::open(2).await;
    bank.fence.raise(&key("a"), token(1)).await.expect("raised");
    let mut other = bank.pool.acquire().await.expect("a connection");
    let mut open = bank.pool.begin().await.expect("begun");
    let id = sqlx::query_scalar::<_, u64>("SELECT CONNECTION_ID()");
    let id = id.fetch_one(&mut *other).await.expect("an id");
    let lie = format!(
        "INSERT INTO leasehold_txn (txn_id, lock_key, token, state, until, conn, at) \
         SELECT 'x', 'a', MAX(token), 2, 0, {id}, UTC_TIMESTAMP(6) FROM leasehold_fence \
         WHERE lock_key = 'a' LOCK IN SHARE MODE"
    );
    open.execute(&*lie).await.expect("a row");
    let root = pool(&bank.server.url("root", &bank.database), 2).await;
    let root = SqlxFence::new(root).expect("clocks");
    let root = root.wait(Duration::from_millis(2_500));
    let early = root.raise(&key("a"), token(2)).await;
    let early = early.expect_err("a transaction is open");
    assert_eq!(early.kind(), ErrorKind::Unavailable, "{early}");
    let lives = other.execute("DO 1").await;
    lives.expect("nobody ended it");
    open.rollback().await.expect("rolled back");
}

/// At every isolation level: a newer holder waits for it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_ends_the_connection_of_a_holder_whose_lease_is_live() {
    let bank = MyBank::open(4).await;
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let before = bank.cents().await;
        let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
        let pool = MySqlPoolOptions::new().max_connections(1);
        let pool = pool.after_connect(move |connection, _| {
            let set = set.clone();
            Box::pin(async move { connection.execute(&*set).await.map(drop) })
        });
        let pool = pool.connect(&bank.server.url("app", &bank.database)).await;
        let fence = SqlxFence::new(pool.expect("a server")).expect("clocks");
        let newer: SqlxFence<MySql> = bank.fence.clone().wait(Duration::from_millis(2_500));
        let name = key(&level.replace(' ', "-"));
        let hold = hold(name.as_str(), 1, LONG);
        let call = fence.transaction::<(), _>(move |tx| {
            Box::pin(async move {
                tx.execute(TAKE).await?;
                let early = newer.raise(&name, token(2)).await;
                let early = early.expect_err("a transaction is open");
                assert_eq!(early.kind(), ErrorKind::Unavailable, "{early}");
                Ok(())
            })
        });
        hold.executor().commit(call).await.expect("applied");
        assert_eq!(bank.cents().await, before - 10, "{level}");
    }
}
