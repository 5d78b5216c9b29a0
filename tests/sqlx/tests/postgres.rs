//! The statements for PostgreSQL over sqlx, on a real server.

#[path = "../../support/postgres.rs"]
mod server;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::run::{CommitProof, Doubt, Resolution};
use leasehold::fence::sql::postgres;
use leasehold::testing::TestHold;
use leasehold::{FencingToken, RunError, Settings};
use server::PgServer;
use sqlx::PgPool;

fn hold(number: u64, ttl: Duration) -> TestHold {
    let clock = Clock::system().expect("clocks");
    let token = FencingToken::new(number).expect("a token");
    let key = "a".parse().expect("a key");
    TestHold::new(clock, &Settings::default(), key, token, ttl)
}

async fn run(
    pool: &PgPool,
    number: u64,
    statements: &'static str,
    is_void: bool,
) -> Result<CommitProof, RunError<()>> {
    let hold = hold(number, Duration::from_secs(60));
    let executor = hold.executor();
    let run = executor.guarded_async(async |tx| {
        let pool = pool.clone();
        tx.commit_with(async move |permit| {
            if is_void {
                let doubt = Doubt::new(permit.locks().to_vec(), permit.txn_id);
                let resolution = leasehold_sqlx::postgres::resolve(&pool, &doubt).await?;
                assert_eq!(resolution, Resolution::NotApplied);
            }
            let work = leasehold_sqlx::postgres::commit(pool, permit, move |sql| {
                Box::pin(async move {
                    // An error that the work ignores leaves an aborted transaction behind.
                    let _ = sqlx::query(statements).execute(sql).await;
                    Ok(())
                })
            });
            work.await
        });
        Ok(())
    });
    run.await.map(|done| done.proof)
}

#[tokio::test]
async fn the_statements_do_over_sqlx_what_they_do_over_tokio_postgres() {
    const TAKE: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1";
    let server = PgServer::start();
    server.psql(postgres::SCHEMA);
    server.psql("CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (1, 100)");
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let cents = || server.psql("SELECT cents FROM account WHERE id = 1");

    let done = run(&pool, 1, TAKE, false).await;
    assert_eq!(done.expect("applied"), CommitProof::Fenced);
    assert_eq!(cents(), "90");

    let void = run(&pool, 1, TAKE, true).await;
    assert!(matches!(void, Err(RunError::RolledBack { .. })), "{void:?}");

    // COMMIT of an aborted transaction would answer without an error; the last statement before it
    // does not.
    let aborted = run(&pool, 1, "SELECT 1 / 0", false).await;
    assert!(
        matches!(aborted, Err(RunError::RolledBack { .. })),
        "{aborted:?}"
    );

    // What it sends after that is outside of the fence.
    for end in ["COMMIT", "ROLLBACK"] {
        let ended = run(&pool, 1, end, false).await;
        assert!(matches!(ended, Err(RunError::InDoubt { .. })), "{ended:?}");
    }

    server.psql("SELECT leasehold.raise('a', 2, 1000)");
    let fenced = run(&pool, 1, TAKE, false).await;
    assert!(matches!(fenced, Err(RunError::Fenced { .. })), "{fenced:?}");
    assert_eq!(cents(), "90");
}

/// A bank with one account, and a commit that takes ten from it after `before` has blocked the
/// thread.
async fn take(
    server: &PgServer,
    ttl: Duration,
    before: impl FnOnce() + Send + 'static,
) -> Result<CommitProof, RunError<()>> {
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let hold = hold(1, ttl);
    let executor = hold.executor();
    let run = executor.guarded_async(async |tx| {
        let pool = pool.clone();
        tx.commit_with(async move |permit| {
            let work = leasehold_sqlx::postgres::commit(pool, permit, move |sql| {
                Box::pin(async move {
                    let take = "UPDATE account SET cents = cents - 10 WHERE id = 1";
                    sqlx::query(take).execute(sql).await?;
                    before();
                    Ok(())
                })
            });
            work.await
        });
        Ok(())
    });
    run.await.map(|done| done.proof)
}

fn with_a_bank(server: &PgServer) {
    server.psql(postgres::SCHEMA);
    server.psql("CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (1, 100)");
}

#[tokio::test]
async fn a_holder_that_stood_still_in_its_transaction_until_the_lease_was_over_is_rolled_back() {
    let server = PgServer::start();
    with_a_bank(&server);
    let ttl = Duration::from_secs(2);
    // As if the process were stopped: its work blocks the thread for as long as the lease lasts.
    let late = take(&server, ttl, move || std::thread::sleep(ttl)).await;
    assert!(matches!(late, Err(RunError::RolledBack { .. })), "{late:?}");
    assert_eq!(server.psql("SELECT cents FROM account"), "100");
}

#[tokio::test]
async fn a_commit_that_no_standby_confirmed_is_in_doubt_until_one_has() {
    let server = PgServer::start();
    with_a_bank(&server);
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.psql("SELECT pg_reload_conf()");
    // The wait for the standbys is cancelled, and the commit answered without an error.
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let clock = Clock::system().expect("clocks");
    let operator = async {
        loop {
            server.psql(cancel);
            clock.sleep(Duration::from_millis(20)).await;
        }
    };
    let taken = tokio::select! {
        taken = take(&server, Duration::from_secs(60), || ()) => taken,
        () = operator => unreachable!("it never ends"),
    };
    let doubt = match &taken {
        Err(in_doubt @ RunError::InDoubt { .. }) => in_doubt.doubt().expect("a doubt"),
        other => panic!("{other:?}"),
    };
    server.psql("ALTER SYSTEM RESET synchronous_standby_names");
    server.psql("SELECT pg_reload_conf()");
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let resolution = leasehold_sqlx::postgres::resolve(&pool, &doubt).await;
    assert_eq!(resolution.expect("an answer"), Resolution::Applied);

    // And with one that confirms.
    let standby = server.standby();
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (*)'");
    server.psql("SELECT pg_reload_conf()");
    let taken = take(&server, Duration::from_secs(60), || ()).await;
    assert_eq!(taken.expect("applied"), CommitProof::Fenced);
    drop(standby);
}
