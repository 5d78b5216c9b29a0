//! The fence in a PostgreSQL database, over sqlx, on servers that these tests start and end.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used)]

#[path = "../kit/mod.rs"]
mod kit;
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
#[path = "../../../tests/support/postgres.rs"]
mod server;
#[path = "../kit/servers.rs"]
mod servers;

mod cuts;
mod ends;
mod fence;
mod pool;
mod standbys;

use std::time::Duration;

use futures_util::future::BoxFuture;
use kit::{Bank, Committing, Work};
use leasehold::BoxError;
use leasehold::run::CommitPermit;
use leasehold_sqlx::{Once, SqlxFence};
use server::PgServer;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Acquire, Executor, PgPool, Postgres, Transaction};

const TAKE: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1 RETURNING cents";

struct PgBank {
    pool: PgPool,
    fence: SqlxFence<Postgres>,
    server: PgServer,
}

impl PgBank {
    async fn open(connections: u32) -> Self {
        let server = PgServer::start();
        let pool = pool(&server.url(), connections).await;
        let fence = SqlxFence::new(pool.clone()).expect("clocks");
        for _ in 0..2 {
            fence.create_schema().await.expect("it may be run again");
        }
        server.psql("CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (1, 1000)");
        Self {
            pool,
            fence,
            server,
        }
    }

    fn set(&self, name: &str, value: &str) {
        self.server
            .psql(&format!("ALTER SYSTEM SET {name} = '{value}'"));
        self.server.psql("SELECT pg_reload_conf()");
    }
}

async fn pool(url: &str, connections: u32) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(connections);
    pool.connect(url).await.expect("a server")
}

async fn done(tx: &mut Transaction<'_, Postgres>, work: Work) -> Result<i64, BoxError> {
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
            let _ = tx.execute(statement).await;
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

fn call(
    fence: &SqlxFence<Postgres>,
    work: Work,
) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send> {
    Box::new(fence.transaction(move |tx| Box::pin(done(tx, work))))
}

impl Bank for PgBank {
    type Fence = SqlxFence<Postgres>;

    const IS_ASKED_AFTER_THE_WORK: bool = true;

    fn fence(&self) -> &Self::Fence {
        &self.fence
    }

    fn commit(&self, work: Work) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send> {
        call(&self.fence, work)
    }

    fn cents(&self) -> BoxFuture<'_, i64> {
        Box::pin(async {
            let cents = sqlx::query_scalar("SELECT cents FROM account WHERE id = 1");
            cents.fetch_one(&self.pool).await.expect("the account")
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_a_fence_holds() {
    kit::every_case(&PgBank::open(4).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_a_fence_holds_with_one_connection() {
    kit::every_case(&PgBank::open(1).await).await;
}
