//! What a lock is held for, as others see it.

use std::time::Duration;

use leasehold::store::Label;
use leasehold::{ErrorKind, LockManager, Settings};

use crate::support::{World, no_handoff, poll_once, secs};

/// The label of whoever holds a key.
async fn label(locks: &LockManager, key: &str) -> Label {
    let info = locks.inspect(key).await.unwrap().unwrap();
    info.label.unwrap()
}

/// A world whose first manager holds all locks for the same.
fn ingesting(settings: Settings) -> World {
    let label = Label::parse("host-a").unwrap();
    let label = label.with_purpose("ingest").unwrap();
    World::built(settings, |builder| builder.label(label))
}

#[tokio::test]
async fn whoever_asks_sees_what_a_lock_is_held_for_and_waited_for() {
    let world = World::labelled("host-a");
    let backup = world.ours.lock("db").purpose("nightly backup");
    let held = backup.acquire().await.unwrap();
    assert_eq!(
        label(&world.theirs, "db").await.purpose(),
        Some("nightly backup")
    );
    let listed = world.theirs.list("").await.unwrap();
    let shown = listed[0].label.as_ref().unwrap();
    assert_eq!(shown.to_string(), "host-a (nightly backup)");

    let other = world.theirs.lock("db").purpose("index");
    let error = other.acquire_within(Duration::ZERO).await.unwrap();
    assert!(error.is_none());
    let mut waiting = Box::pin(other.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let info = world.ours.inspect("db").await.unwrap().unwrap();
    let waits = info.waiters[0].label.as_ref().unwrap();
    assert_eq!(waits.purpose(), Some("index"));
    drop(waiting);
    let _ = held.release().await.unwrap();
    // It belongs to the lock and not to the key.
    let _plain = world.ours.lock("db").acquire().await.unwrap();
    assert_eq!(label(&world.theirs, "db").await.purpose(), None);
}

#[tokio::test]
async fn a_wait_in_vain_names_the_purpose_of_the_holder() {
    let mut settings = Settings::default();
    settings.wait = Duration::ZERO;
    let world = ingesting(settings);
    let _held = world.ours.lock("db").acquire().await.unwrap();
    let error = world.theirs.lock("db").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert!(
        error.to_string().contains("held by host-a (ingest)"),
        "{error}"
    );

    let slots = world.ours.semaphore("slots", 1);
    let _slot = slots.acquire().await.unwrap();
    let error = world
        .theirs
        .semaphore("slots", 1)
        .acquire()
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("held by host-a (ingest)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_candidate_keeps_its_name_and_the_purpose_of_its_manager() {
    let world = ingesting(Settings::default());
    let election = world.ours.election("office");
    let _term = election.campaign("candidate-7").await.unwrap();
    let shown = label(&world.theirs, "office").await;
    assert_eq!(
        (shown.as_str(), shown.purpose()),
        ("candidate-7", Some("ingest"))
    );
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.name.unwrap().as_str(), "candidate-7");
}

/// A handoff keeps the record of the store, so it would report the former purpose.
#[tokio::test]
async fn a_grant_is_handed_off_to_the_same_purpose_only() {
    for (settings, is_handed_off) in [(Settings::default(), true), (no_handoff(), false)] {
        let world = ingesting(settings);
        let plain = world.ours.lock("a");
        let held = plain.acquire().await.unwrap();
        let first = held.token();
        let [same, other] = ["ingest", "repair"].map(|purpose| plain.clone().purpose(purpose));
        let mut same = same.into_future();
        assert!(poll_once(&mut same).await.is_pending());
        let mut other = other.into_future();
        assert!(poll_once(&mut other).await.is_pending());
        let _ = held.release().await.unwrap();
        let same = same.await.unwrap();
        assert_eq!(same.token() == first, is_handed_off);
        assert_eq!(label(&world.theirs, "a").await.purpose(), Some("ingest"));
        let second = same.token();
        let _ = same.release().await.unwrap();
        let other = other.await.unwrap();
        assert_ne!(other.token(), second);
        assert_eq!(label(&world.theirs, "a").await.purpose(), Some("repair"));
    }
}

#[tokio::test]
async fn a_purpose_that_is_none_is_refused_by_each_call() {
    let world = World::new();
    for purpose in ["", "two\nlines", &"x".repeat(101)] {
        let lock = world.ours.lock("a").purpose(purpose);
        let error = lock.acquire_within(secs(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert!(world.is_free("a").await);
}
