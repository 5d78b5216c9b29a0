//! A database of each test's own for locks, on a server that keeps what it confirms.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::postgres::PostgresStore;
use leasehold::{LockManager, Settings};

use crate::server::{PgServer, Shared};

pub(crate) struct Locks {
    server: Arc<PgServer>,
    pub(crate) name: String,
}

impl Locks {
    /// Without the schema.
    pub(crate) fn empty() -> Self {
        static SHARED: Shared = Mutex::new(Weak::new());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let locks = Self {
            server: crate::server::shared(&SHARED, &["fsync=on"]),
            name: format!("locks{count}"),
        };
        locks
            .server
            .psql(&format!("CREATE DATABASE {}", locks.name));
        locks
    }

    pub(crate) async fn open() -> Self {
        let locks = Self::empty();
        locks.store("create=auto").await;
        locks
    }

    pub(crate) fn server(&self) -> &PgServer {
        &self.server
    }

    pub(crate) fn url(&self, query: &str) -> String {
        self.url_at(self.server.port(), query)
    }

    pub(crate) fn url_at(&self, port: u16, query: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{}?{query}", self.name)
    }

    /// It waits for longer than a busy machine holds an answer up.
    pub(crate) async fn store(&self, query: &str) -> PostgresStore {
        let query = format!("timeout_millis=20000&{query}");
        let url = self.url(query.trim_end_matches('&'));
        PostgresStore::connect(&url).await.unwrap()
    }

    pub(crate) fn psql(&self, statements: &str) -> String {
        self.server.psql_in(&self.name, statements).unwrap()
    }
}

pub(crate) async fn manager(url: &str, change: impl FnOnce(&mut Settings)) -> LockManager {
    let mut settings = Settings::default();
    // Longer than a busy machine holds an answer up.
    settings.request_timeout = Duration::from_secs(10);
    change(&mut settings);
    let builder = LockManager::builder_for_url(url, settings).await.unwrap();
    builder.build().unwrap()
}
