//! Reentrant locks: the owner is a scope.

use leasehold::reentrant::{Scope, scope};
use leasehold::store::Released;
use leasehold::{Ended, ErrorKind};

use crate::support::{World, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::leaves_nothing_whenever_dropped;

#[tokio::test]
async fn a_scope_enters_its_own_hold_again_without_asking_the_store() {
    let world = World::new();
    let lock = world.ours.reentrant("a");
    let scope = Scope::new();
    let outer = lock.acquire(&scope).await.unwrap();
    // The store could not answer: it has lost the lock.
    world.store.forget();
    let inner = lock.acquire(&scope).await.unwrap();
    assert_eq!(inner.token(), outer.token());
    assert_eq!(world.ours.held().len(), 1);
}

#[tokio::test]
async fn the_hold_ends_with_the_outermost_guard() {
    let world = World::new();
    let lock = world.ours.reentrant("a");
    let scope = Scope::new();
    let outer = lock.acquire(&scope).await.unwrap();
    let inner = lock.acquire(&scope).await.unwrap();
    let innermost = lock.acquire(&scope).await.unwrap();
    drop(innermost);
    assert!(inner.release().await.unwrap().is_none());
    assert!(outer.lease().is_live());
    assert!(matches!(
        outer.release().await,
        Ok(Some(Released::Released))
    ));
    assert!(world.is_free("a").await);
    let again = lock.acquire(&scope).await.unwrap();
    assert!(again.lease().is_live());
}

#[tokio::test]
async fn a_reentrant_hold_has_the_ttl_and_the_longest_time_of_its_lock() {
    let world = World::new();
    let lock = world
        .ours
        .reentrant("a")
        .fair()
        .ttl(secs(2))
        .max_hold(secs(3));
    let scope = Scope::new();
    let outer = lock.acquire(&scope).await.unwrap();
    assert!(outer.remaining() < secs(2));
    world.pass(secs(2)).await;
    let inner = lock.acquire(&scope).await.unwrap();
    world.pass(secs(2)).await;
    assert_eq!(inner.lease().lost_reason(), Some(Ended::MaxHold));
}

#[tokio::test]
async fn from_another_scope_it_waits() {
    let world = World::new();
    let lock = world.ours.reentrant("a");
    let (one, other) = (Scope::new(), Scope::new());
    let outer = lock.acquire(&one).await.unwrap();
    let mut waiting = Box::pin(lock.acquire(&other));
    assert!(poll_once(&mut waiting).await.is_pending());
    let inner = lock.acquire(&one).await.unwrap();
    drop(outer);
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = inner.release().await;
    let next = while_time_passes(&world, secs(1), waiting).await.unwrap();
    assert!(next.lease().is_live());
}

#[tokio::test]
async fn a_lapsed_hold_is_not_entered_again() {
    let world = World::new();
    let lock = world.ours.reentrant("a");
    let scope = Scope::new();
    let outer = lock.acquire(&scope).await.unwrap();
    world.clock.advance(secs(11));
    let error = lock.acquire(&scope).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
    drop(outer);
    world.settled().await;
    let again = lock.acquire(&scope).await.unwrap();
    assert!(again.lease().is_live());
}

#[tokio::test]
async fn a_scope_is_no_owner_in_another_manager() {
    let world = World::new();
    let scope = Scope::new();
    let _ours = world.ours.reentrant("a").acquire(&scope).await.unwrap();
    let theirs = world.theirs.reentrant("a");
    let waited = while_time_passes(&world, secs(3), theirs.acquire_within(&scope, secs(1))).await;
    assert!(waited.unwrap().is_none());
}

#[tokio::test]
async fn two_tasks_of_one_scope_that_ask_at_once_share_one_hold() {
    let world = World::new();
    let lock = world.ours.reentrant("a");
    let scope = Scope::new();
    let (one, other) = tokio::join!(lock.acquire(&scope), lock.acquire(&scope));
    assert_eq!(one.unwrap().token(), other.unwrap().token());
}

#[tokio::test]
async fn a_task_carries_its_scope() {
    let world = World::new();
    assert!(Scope::current().is_none());
    let lock = world.ours.reentrant("a");
    scope(async {
        let outer = lock.acquire(&Scope::current().unwrap()).await.unwrap();
        // What is called from here may wrap itself in a scope too, and is still let in.
        scope(async {
            let inner = lock.acquire(&Scope::current().unwrap()).await.unwrap();
            assert_eq!(inner.token(), outer.token());
        })
        .await;
        // A spawned task is another owner.
        assert!(
            tokio::spawn(async { Scope::current() })
                .await
                .unwrap()
                .is_none()
        );
    })
    .await;
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_await_leaks_nothing() {
    leaves_nothing_whenever_dropped(2, async |locks, times| {
        poll_and_drop(times, locks.reentrant("a").acquire(&Scope::new()))
    })
    .await;
}

#[tokio::test]
async fn a_task_that_nobody_polls_keeps_no_other_task_of_its_scope_waiting() {
    let world = World::new();
    let theirs = world.theirs.lock("a").acquire().await.unwrap();
    let (lock, scope) = (world.ours.reentrant("a"), Scope::new());
    let mut unpolled = Box::pin(lock.acquire(&scope));
    assert!(poll_once(&mut unpolled).await.is_pending());
    theirs.release().await.unwrap();
    let held = while_time_passes(&world, secs(10), lock.acquire(&scope)).await;
    let held = held.unwrap();
    // When it is polled again, it enters the hold.
    let inner = while_time_passes(&world, secs(1), unpolled).await.unwrap();
    assert_eq!(inner.token(), held.token());
    assert_eq!(world.ours.held().len(), 1);
}

#[tokio::test]
async fn tasks_of_one_scope_that_wait_together_share_the_hold_that_the_first_gets() {
    let world = World::new();
    let theirs = world.theirs.lock("a").acquire().await.unwrap();
    let (lock, scope) = (world.ours.reentrant("a"), Scope::new());
    let both = async { tokio::join!(lock.acquire(&scope), lock.acquire(&scope)) };
    let mut both = Box::pin(both);
    assert!(poll_once(&mut both).await.is_pending());
    theirs.release().await.unwrap();
    let (one, other) = while_time_passes(&world, secs(10), both).await;
    assert_eq!(one.unwrap().token(), other.unwrap().token());
}
