//! The statements for PostgreSQL over sqlx, on a real server.

#[path = "../../support/postgres.rs"]
mod server;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::executor::{CommitProof, Doubt, Resolution};
use leasehold::fence::sql::postgres;
use leasehold::test_util::TestHold;
use leasehold::{FencingToken, RunError, Settings};
use server::PgServer;
use sqlx::PgPool;

async fn run(
    pool: &PgPool,
    number: u64,
    statements: &'static str,
    is_void: bool,
) -> Result<CommitProof, RunError<()>> {
    let clock = Clock::system().expect("clocks");
    let token = FencingToken::new(number).expect("a token");
    let key = "a".parse().expect("a key");
    let ttl = Duration::from_secs(60);
    let hold = TestHold::new(clock, &Settings::default(), key, token, ttl);
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

    // COMMIT of an aborted transaction would answer without an error; the last statement before it does not.
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
