//! Migrations from Rust, through PgBouncer in transaction mode, as the page `migrations` has them.

use std::time::Duration;

use leasehold::postgres::tokio_postgres::SimpleQueryMessage;
use leasehold::{BoxError, LockManager};
use tokio::sync::Barrier;

use crate::server::PgBouncer;
use crate::store_world::{Locks, manager};
use crate::world::connect;

/// A migration tool without a lock: reads what is applied, then applies the rest.
async fn run_migrations(url: &str, between: impl AsyncFnOnce()) -> Result<(), BoxError> {
    let database = connect(url).await;
    let done = database
        .simple_query("SELECT 1 FROM migrations_done")
        .await?;
    let is_done = done
        .iter()
        .any(|row| matches!(row, SimpleQueryMessage::Row(_)));
    between().await;
    if !is_done {
        let migration = "BEGIN; UPDATE accounts SET cents = cents * 2; SELECT pg_sleep(0.2); \
            INSERT INTO migrations_done VALUES ('double'); COMMIT";
        database.batch_execute(migration).await?;
    }
    Ok(())
}

async fn migrate(locks: &LockManager, url: &str) -> Result<(), BoxError> {
    let wait = Duration::from_secs(15 * 60);
    let lock = locks.lock("migrate").acquire_within(wait).await?;
    let guard = lock.ok_or("another host still migrates")?;
    tokio::select! {
        migrated = run_migrations(url, async || {}) => migrated?,
        why = guard.lost() => return Err(why.to_string().into()),
    }
    guard.release().await?;
    Ok(())
}

fn accounts(locks: &Locks) {
    locks.psql("CREATE TABLE accounts (cents bigint); INSERT INTO accounts VALUES (50)");
    locks.psql("CREATE TABLE migrations_done (name text)");
}

fn database(locks: &Locks, pooler: &PgBouncer) -> String {
    locks.url_at(pooler.port(), "application_name=migrations")
}

#[tokio::test]
async fn of_three_hosts_that_migrate_at_once_one_applies_a_migration() {
    let locks = Locks::open().await;
    accounts(&locks);
    let pooler = PgBouncer::before(locks.server());
    let database = database(&locks, &pooler);
    let port = locks.server().port();
    let options = format!("timeout_millis=20000&listen=127.0.0.1:{port}");
    let mut hosts = Vec::new();
    for _ in 0..3 {
        // A host of its own: no caller is served by the queue of another.
        let manager = manager(&locks.url_at(pooler.port(), &options), |_| {}).await;
        let database = database.clone();
        hosts.push(tokio::spawn(async move {
            migrate(&manager, &database)
                .await
                .map_err(|why| why.to_string())
        }));
    }
    for host in hosts {
        host.await.unwrap().unwrap();
    }
    assert_eq!(locks.psql("SELECT cents FROM accounts"), "100");
    assert_eq!(locks.psql("SELECT count(*) FROM migrations_done"), "1");
}

/// What the lock is for: this shows that the test above would notice its absence.
#[tokio::test]
async fn three_hosts_that_migrate_without_a_lock_apply_a_migration_three_times() {
    let locks = Locks::open().await;
    accounts(&locks);
    let pooler = PgBouncer::before(locks.server());
    let database = database(&locks, &pooler);
    let all = Barrier::new(3);
    let host = || async {
        let meet = async || {
            all.wait().await;
        };
        run_migrations(&database, meet).await.unwrap();
    };
    tokio::join!(host(), host(), host());
    assert_eq!(locks.psql("SELECT cents FROM accounts"), "400");
}
