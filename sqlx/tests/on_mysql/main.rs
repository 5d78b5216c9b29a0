//! The fence in a MariaDB database, over sqlx, on servers that these tests start and end.
#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used)]

#[path = "../kit/mod.rs"]
mod kit;
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
#[path = "../../../tests/support/mariadb.rs"]
mod server;
#[path = "../kit/servers.rs"]
mod servers;

mod cuts;
mod ends;
mod fence;
mod hung;
mod names;
mod session;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kit::{Bank, Committing, Work};
use leasehold::BoxError;
use leasehold::run::CommitPermit;
use leasehold_sqlx::{Once, SqlxFence};
use server::MariaDb;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Acquire, Executor, MySql, MySqlPool, Transaction};

const TAKE: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1";
const LEFT: &str = "SELECT cents FROM account WHERE id = 1";

/// In a database of its own, as a user that may read and write.
struct MyBank {
    pool: MySqlPool,
    fence: SqlxFence<MySql>,
    database: String,
    server: Arc<MariaDb>,
}

impl MyBank {
    /// On the server that these tests share.
    async fn open(connections: u32) -> Self {
        static SHARED: server::Shared = server::Shared::new(std::sync::Weak::new());
        Self::on(server::shared(&SHARED), connections).await
    }

    async fn on(server: Arc<MariaDb>, connections: u32) -> Self {
        let database = server.database();
        let owner = pool(&server.url("root", &database), 1).await;
        let owner = SqlxFence::new(owner).expect("clocks");
        for _ in 0..2 {
            owner.create_schema().await.expect("it may be run again");
        }
        server.sql(&database, "CREATE TABLE account (id INT PRIMARY KEY, cents BIGINT NOT NULL); INSERT INTO account VALUES (1, 1000), (2, 0)");
        let pool = pool(&server.url("app", &database), connections).await;
        let fence = SqlxFence::new(pool.clone()).expect("clocks");
        Self {
            pool,
            fence,
            database,
            server,
        }
    }

    /// What an operator reads.
    fn sql(&self, statements: &str) -> String {
        self.server.sql(&self.database, statements)
    }
}

async fn pool(url: &str, connections: u32) -> MySqlPool {
    let pool = MySqlPoolOptions::new().max_connections(connections);
    pool.connect(url).await.expect("a server")
}

async fn taken(tx: &mut Transaction<'_, MySql>) -> sqlx::Result<i64> {
    tx.execute(TAKE).await?;
    sqlx::query_scalar(LEFT).fetch_one(&mut **tx).await
}

async fn done(tx: &mut Transaction<'_, MySql>, work: Work) -> Result<i64, BoxError> {
    if let Work::Once(name) = work
        && !tx.once(name, Duration::from_secs(60)).await?
    {
        return Ok(-1);
    }
    let left = taken(tx).await?;
    match work {
        Work::Take | Work::Once(_) => {}
        Work::Refuse => return Err("refused".into()),
        Work::Fail { is_swallowed } => {
            let failed = tx.execute("INSERT INTO account VALUES (1, 0)").await;
            if !is_swallowed {
                failed?;
            }
        }
        Work::End(statement) => {
            let _ = tx.execute(statement).await;
            let _ = tx.execute(TAKE).await;
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
    fence: &SqlxFence<MySql>,
    work: Work,
) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send> {
    Box::new(fence.transaction(move |tx| Box::pin(done(tx, work))))
}

impl Bank for MyBank {
    type Fence = SqlxFence<MySql>;

    const IS_ASKED_AFTER_THE_WORK: bool = true;

    fn fence(&self) -> &Self::Fence {
        &self.fence
    }

    fn commit(&self, work: Work) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send> {
        call(&self.fence, work)
    }

    fn cents(&self) -> BoxFuture<'_, i64> {
        Box::pin(async {
            let cents = sqlx::query_scalar(LEFT);
            cents.fetch_one(&self.pool).await.expect("the account")
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_a_fence_holds() {
    kit::every_case(&MyBank::open(4).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_a_fence_holds_with_one_connection() {
    kit::every_case(&MyBank::open(1).await).await;
}
