//! A store that grants nothing yet is distinguished from a holder: for a caller that asks once, for
//! one that waits, and for one that waits behind another caller of its process.

use leasehold::{Error, ErrorKind, Settings};

use crate::support::{World, ms, poll_once, secs, while_time_passes};

fn is_not_ready(error: &Error, least: u64, most: u64) {
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error}");
    assert!(error.is_retryable());
    let retry_after = error.retry_after().unwrap();
    assert!(
        retry_after > secs(least) && retry_after <= secs(most),
        "{retry_after:?}"
    );
}

#[tokio::test]
async fn a_store_that_grants_nothing_yet_is_an_error_that_says_for_how_long() {
    let world = World::new();
    world.store.restart(secs(30));
    let lock = world.ours.lock("a");
    let error = lock.try_acquire().await.unwrap_err();
    is_not_ready(&error, 29, 30);
    assert_eq!(
        error.to_string(),
        "not ready: the store grants nothing for another 30.0 s: store=memory key=a; it restarted or lost its data, and may \
         have forgotten locks whose leases are live; try again after that"
    );
    let waited = while_time_passes(&world, secs(11), lock.acquire_within(secs(10))).await;
    is_not_ready(&waited.unwrap_err(), 19, 20);
    world.clock.advance(secs(20));
    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert!(!world.is_theirs_to_take("a").await, "a holder is no error");
    drop(guard);
}

#[tokio::test]
async fn the_default_wait_outlasts_the_default_quarantine() {
    let world = World::new();
    world.store.restart(secs(30));
    let held = while_time_passes(&world, secs(40), world.ours.lock("a").acquire()).await;
    assert!(held.is_ok(), "{held:?}");
}

#[tokio::test]
async fn a_caller_behind_another_caller_of_its_process_learns_it_too() {
    let world = World::new();
    world.store.restart(secs(30));
    let lock = world.ours.lock("a");
    let mut first = Box::pin(lock.acquire());
    assert!(poll_once(&mut first).await.is_pending());
    is_not_ready(&lock.try_acquire().await.unwrap_err(), 29, 30);
    let mut second = Box::pin(lock.acquire_within(secs(5)));
    assert!(poll_once(&mut second).await.is_pending());
    for _ in 0..50 {
        assert!(poll_once(&mut first).await.is_pending());
        world.clock.advance(ms(100));
        world.settled().await;
    }
    let error = second.await.unwrap_err();
    is_not_ready(&error, 24, 25);
    // Somebody held it last: then it is the holder that is waited for.
    let guard = while_time_passes(&world, secs(30), first).await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    drop(guard);
}

#[tokio::test]
async fn every_kind_of_lock_distinguishes_it() {
    let mut settings = Settings::default();
    settings.wait = secs(2);
    let world = World::with(settings);
    world.store.restart(secs(30));
    let locks = &world.ours;
    let scope = leasehold::reentrant::Scope::new();
    let once = [
        locks.lock("a").fair().try_acquire().await.err(),
        locks.semaphore("a", 2).try_acquire().await.err(),
        locks.lock_all(["a", "b"]).try_acquire().await.err(),
        locks.read_write("a").try_read().await.err(),
        locks.read_write("a").try_write().await.err(),
        locks.reentrant("a").try_acquire(&scope).await.err(),
    ];
    for error in once {
        is_not_ready(&error.unwrap(), 29, 30);
    }
    let semaphore = locks.semaphore("a", 2);
    let waited = while_time_passes(&world, secs(3), semaphore.acquire()).await;
    is_not_ready(&waited.unwrap_err(), 27, 28);
    let all = locks.lock_all(["a", "b"]);
    let waited = while_time_passes(&world, secs(3), all.acquire()).await;
    is_not_ready(&waited.unwrap_err(), 25, 26);
}
