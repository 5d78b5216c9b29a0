//! A database of each test's own, on a server that the tests share, and holds without a store.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::postgres::{PgFence, tokio_postgres};
use leasehold::testing::TestHold;
use leasehold::{Cause, Executor, FencingToken, Key, RunError, Settings};

use crate::server::{PgServer, Shared};

/// Long enough that no test's lease is over before the test is.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// A database with the fence's schema and one account that holds 100.
pub(crate) struct Bank {
    server: Arc<PgServer>,
    name: String,
}

impl Bank {
    pub(crate) async fn open() -> Self {
        static SHARED: Shared = Mutex::new(Weak::new());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let bank = Self {
            server: crate::server::shared(&SHARED, &["deadlock_timeout=100ms"]),
            name: format!("bank{count}"),
        };
        bank.server.psql(&format!("CREATE DATABASE {}", bank.name));
        bank.fence().await.create_schema().await.unwrap();
        bank.psql(ACCOUNTS);
        bank
    }

    pub(crate) fn server(&self) -> &PgServer {
        &self.server
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        self.url_at(self.server.port())
    }

    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{}", self.name)
    }

    /// It waits for the transactions of former holders for as long as any of them lasts, on a busy
    /// machine too.
    pub(crate) async fn fence(&self) -> PgFence {
        let fence = PgFence::connect(&self.url()).await.unwrap();
        fence.wait(Duration::from_secs(60))
    }

    pub(crate) fn psql(&self, statements: &str) -> String {
        self.server.psql_in(&self.name, statements).unwrap()
    }

    pub(crate) fn psql_error(&self, statements: &str) -> String {
        self.server.psql_in(&self.name, statements).unwrap_err()
    }

    /// A plain connection, as another program has one.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        connect(&self.url()).await
    }

    pub(crate) fn cents(&self) -> i64 {
        self.psql("SELECT cents FROM account WHERE id = 1")
            .parse()
            .unwrap()
    }
}

pub(crate) const ACCOUNTS: &str = "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (1, 100), (2, 100)";

pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) const TAKE: &str = "UPDATE account SET cents = cents - $1 WHERE id = 1 RETURNING cents";

pub(crate) fn key(name: &str) -> Key {
    name.parse().unwrap()
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub(crate) fn hold(number: u64) -> TestHold {
    hold_for(number, TTL)
}

/// Of the key `a`.
pub(crate) fn hold_of(token: FencingToken) -> TestHold {
    hold(token.number())
}

pub(crate) fn hold_for(number: u64, ttl: Duration) -> TestHold {
    let clock = Clock::system().unwrap();
    TestHold::new(clock, &Settings::default(), key("a"), token(number), ttl)
}

/// Takes ten from the account; what is left.
pub(crate) async fn take_ten(executor: &Executor, fence: &PgFence) -> Result<i64, RunError<i64>> {
    let call = fence.transaction(async move |t| {
        let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
        t.done(left)
    });
    executor.commit(call).await.map(|done| done.value)
}

/// The run was rolled back, and the server proved that its commit was not applied.
#[track_caller]
pub(crate) fn assert_not_applied<T>(end: &RunError<T>) {
    assert!(
        matches!(
            end,
            RunError::RolledBack {
                cause: Cause::NotApplied(_),
                ..
            }
        ),
        "{end:?}"
    );
}

/// Waits until a condition of another program holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    crate::server::until(what, async || condition()).await;
}
