//! Every kind of lock, on locks in PostgreSQL.

use leasehold::GuardedCell;
#[cfg(feature = "config")]
use leasehold::LockManager;
#[cfg(feature = "config")]
use leasehold::config::Config;
use leasehold::postgres::PgFence;
use leasehold::reentrant::Scope;
use leasehold::store::Released;

use crate::one_time::each_fire_time_is_done_once;
use crate::store_world::{Locks, manager};

#[tokio::test]
async fn exclusive_fair_and_reentrant_locks_exclude_another_manager() {
    let locks = Locks::open().await;
    let ours = manager(&locks.url(""), |_| {}).await;
    let theirs = manager(&locks.url(""), |_| {}).await;
    for lock in [ours.lock("a"), ours.lock("a").fair()] {
        let guard = lock.acquire().await.unwrap();
        assert!(theirs.lock("a").try_acquire().await.unwrap().is_none());
        let cell = GuardedCell::new(1);
        let done = guard.executor().guarded(|tx| {
            *tx.write(&cell) += 1;
            Ok(())
        });
        assert_eq!(done.unwrap().token, guard.token());
        assert!(matches!(guard.release().await, Ok(Released::Released)));
    }
    let (lock, scope) = (ours.reentrant("a"), Scope::new());
    let outer = lock.acquire(&scope).await.unwrap();
    let inner = lock.acquire(&scope).await.unwrap();
    assert_eq!(inner.token(), outer.token());
    assert!(inner.release().await.unwrap().is_none());
    assert!(theirs.lock("a").try_acquire().await.unwrap().is_none());
    assert!(outer.release().await.unwrap().is_some());
    assert!(theirs.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_one_time_job_is_done_by_one_of_two_managers() {
    let locks = Locks::open().await;
    let ours = manager(&locks.url(""), |_| {}).await;
    let theirs = manager(&locks.url(""), |_| {}).await;
    each_fire_time_is_done_once(&ours, &theirs).await;
}

#[tokio::test]
async fn readers_share_a_writer_is_alone_and_becomes_a_reader_without_a_gap() {
    let locks = Locks::open().await;
    let ours = manager(&locks.url(""), |_| {}).await.read_write("a");
    let theirs = manager(&locks.url(""), |_| {}).await.read_write("a");
    let one = ours.read().await.unwrap();
    let two = theirs.read().await.unwrap();
    assert!(theirs.try_write().await.unwrap().is_none());
    let _ = (one.release().await, two.release().await);
    let writer = ours.write().await.unwrap();
    assert!(theirs.try_read().await.unwrap().is_none());
    let token = writer.token();
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.token(), token);
    assert!(theirs.try_read().await.unwrap().is_some());
    assert!(theirs.try_write().await.unwrap().is_none());
}

#[tokio::test]
async fn several_keys_slots_and_a_leader() {
    let locks = Locks::open().await;
    let ours = manager(&locks.url(""), |_| {}).await;
    let theirs = manager(&locks.url(""), |_| {}).await;
    let both = ours.lock_all(["b", "a"]).acquire().await.unwrap();
    assert!(
        theirs
            .lock_all(["a", "c"])
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert!(theirs.lock("c").try_acquire().await.unwrap().is_some());
    both.release().await.unwrap();

    let one = ours.semaphore("s", 2).acquire().await.unwrap();
    let two = theirs.semaphore("s", 2).acquire().await.unwrap();
    assert_ne!(one.slot(), two.slot());
    assert!(
        ours.semaphore("s", 2)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let _ = two.release().await;
    assert!(
        ours.semaphore("s", 2)
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );

    let first = ours.election("office").campaign("host-a").await.unwrap();
    let leader = theirs.election("office").leader().await.unwrap().unwrap();
    assert_eq!(leader.name.unwrap().as_str(), "host-a");
    assert_eq!(leader.term, Some(first.term()));
    let term = first.term();
    first.resign().await.unwrap();
    let second = theirs.election("office").campaign("host-b").await.unwrap();
    assert!(second.term() > term);
}

#[test]
fn a_thread_without_a_runtime_locks_too() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (locks, ours) = runtime.block_on(async {
        let locks = Locks::open().await;
        let ours = manager(&locks.url(""), |_| {}).await;
        (locks, ours)
    });
    drop(runtime);
    let guard = ours.block_on(ours.lock("a").acquire()).unwrap();
    let busy = ours.block_on(ours.lock("a").try_acquire()).unwrap();
    assert!(busy.is_none());
    assert_eq!(
        locks.psql("SELECT key FROM leasehold.claim WHERE token IS NOT NULL"),
        "a"
    );
    ours.block_on(guard.release()).unwrap();
}

#[cfg(feature = "config")]
#[tokio::test]
async fn a_file_the_environment_and_a_url_name_the_locks_of_one_database() {
    let locks = Locks::open().await;
    let url = locks.url("timeout_millis=20000");
    let text = format!(
        "store = '{url}'\nrequest_timeout = '10s'\nlabel = 'top'\n[managers.jobs]\nlabel = 'jobs'\n"
    );
    let file = Config::parse(&text).unwrap();
    let vars = [("STORE", url.as_str()), ("REQUEST_TIMEOUT", "10s")];
    let vars = vars.map(|(name, value)| (format!("LEASEHOLD_{name}"), value.to_owned()));
    let environment = Config::from_vars(vars).unwrap();
    let jobs = file.manager("jobs").unwrap().connect().await.unwrap();
    let guard = jobs.lock("a").acquire().await.unwrap();
    for config in [&file, &environment] {
        let theirs = config.top().unwrap().connect().await.unwrap();
        assert!(theirs.lock("a").try_acquire().await.unwrap().is_none());
    }
    let theirs = LockManager::connect(&url).await.unwrap();
    // Its request_timeout is shorter than a busy machine may need.
    crate::server::until("it is seen to be busy", async || {
        matches!(theirs.lock("a").try_acquire().await, Ok(None))
    })
    .await;
    let label = "SELECT label FROM leasehold.claim WHERE token IS NOT NULL";
    assert_eq!(locks.psql(label), "jobs");
    guard.release().await.unwrap();
}

/// Locks and data in one database, which one URL names: the token of the grant is the one that the
/// fence compares.
#[tokio::test]
async fn a_lock_of_the_database_guards_a_fenced_transaction_in_it() {
    let locks = Locks::open().await;
    let url = locks.url("timeout_millis=20000&create=auto&max_ttl=30s");
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
    locks.psql("CREATE TABLE account (cents bigint); INSERT INTO account VALUES (100)");
    let ours = manager(&url, |_| {}).await;
    for left in [90_i64, 80] {
        let call = fence.transaction(async |t| {
            let take = "UPDATE account SET cents = cents - 10 RETURNING cents";
            let left: i64 = t.query_one(take, &[]).await?.get(0);
            t.done(left)
        });
        let done = ours
            .lock("account")
            .fence(fence.clone())
            .commit(call)
            .await
            .unwrap();
        assert_eq!(done.value, left);
        let seen = locks.psql("SELECT token FROM leasehold.fence WHERE key = 'account'");
        assert_eq!(seen, done.token.to_string());
    }
}
