//! Members that are stopped, slow, restarted or in a minority.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::ErrorKind;
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::testing::Operation;

use crate::world::{QUARANTINE, TTL, World, claim, granted, key, settle};

/// Completes without any time passing.
async fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..200 {
        if let Some(output) = future.as_mut().now_or_never() {
            return output;
        }
        tokio::task::yield_now().await;
    }
    panic!("it waits for time to pass");
}

#[tokio::test]
async fn a_stopped_minority_costs_no_wait() {
    for (members, stopped) in [(3, 1), (5, 2)] {
        let world = World::new(members);
        (0..stopped).for_each(|member| world.stop(member));
        let store = world.client();
        let grant = granted(at_once(store.acquire(&claim())).await);
        let renewed = at_once(store.renew(std::slice::from_ref(&grant))).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
        let busy = at_once(world.client().acquire(&claim())).await;
        assert!(matches!(busy, Ok(Acquired::Busy { .. })), "{busy:?}");
        assert!(at_once(store.inspect(&key())).await.unwrap().is_some());
        let hint = at_once(store.subscribe(&claim())).await.unwrap();
        assert!(matches!(
            at_once(store.release(&grant)).await,
            Released::Released
        ));
        at_once(hint).await;
        let again = claim();
        let _grant = granted(at_once(store.acquire(&again)).await);
        at_once(store.withdraw(&again)).await.unwrap();
    }
}

#[tokio::test]
async fn an_attempt_with_a_long_ttl_does_not_keep_others_from_being_given_back() {
    let world = World::new(3);
    let store = world.client();
    let mut grants = Vec::new();
    for (key, minutes) in [("long", 60), ("short", 1)] {
        let mut claim = claim();
        (claim.key, claim.ttl) = (key.parse().unwrap(), Duration::from_secs(60 * minutes));
        grants.push(granted(store.acquire(&claim).await));
    }
    settle().await;
    let gives_back = [Operation::Release, Operation::Withdraw];
    let first = &world.members[0];
    for operation in gives_back {
        first.network.block(operation);
    }
    for grant in &grants {
        assert!(matches!(store.release(grant).await, Released::Released));
        settle().await;
    }
    assert_eq!(first.data.list("").await.unwrap().len(), 2);
    for operation in gives_back {
        first.network.unblock(operation);
    }
    for _ in 0..30 {
        world.pass(Duration::from_secs(1)).await;
    }
    let left = first.data.list("").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_stopped_majority_grants_nothing_and_keeps_nothing() {
    let world = World::new(3);
    world.stop(0);
    world.stop(1);
    let store = world.client();
    let claim = claim();
    let acquire = store.acquire(&claim);
    assert!(acquire.now_or_never().is_none(), "and the caller gives up");
    store.withdraw(&claim).now_or_never();
    world.go_on(0);
    world.go_on(1);
    world.pass(Duration::ZERO).await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn what_a_stopped_member_executes_after_the_release_is_refused() {
    let world = World::new(3);
    world.stop(2);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    assert_eq!(world.keepers().await, [0, 1]);
    assert!(matches!(store.release(&grant).await, Released::Released));
    world.go_on(2);
    settle().await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_late_vote_joins_the_hold() {
    let world = World::new(3);
    world.stop(2);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    world.go_on(2);
    settle().await;
    assert_eq!(world.keepers().await, [0, 1, 2]);
    let record = world.members[2]
        .data
        .inspect(&key())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        record.token,
        Some(grant.token),
        "with the token of the hold"
    );
    world.restart(0);
    let renewed = store.renew(&[grant]).await;
    assert!(
        matches!(renewed[..], [Renewed::Extended(_)]),
        "it counts: {renewed:?}"
    );
}

#[tokio::test]
async fn a_lost_attempt_is_taken_back_from_every_member() {
    let world = World::new(3);
    let (first, second) = (world.client(), world.client());
    world.stop(2);
    let grant = granted(first.acquire(&claim()).await);
    world.members[2].network.unblock(Operation::Acquire);
    world.members[2].data.restart(Duration::ZERO);
    // The member that forgot votes for the second client, which loses all the same.
    let busy = second.acquire(&claim()).await.unwrap();
    assert!(
        matches!(busy, Acquired::Busy { remaining: Some(_) }),
        "{busy:?}"
    );
    world.go_on(2);
    settle().await;
    assert!(matches!(first.release(&grant).await, Released::Released));
    settle().await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_waiting_claim_may_lose_and_ask_again() {
    let world = World::new(3);
    let (first, second) = (world.client(), world.client());
    let grant = granted(first.acquire(&claim()).await);
    let waiting = claim();
    for _ in 0..5 {
        let busy = second.acquire(&waiting).await.unwrap();
        assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
        settle().await;
    }
    let _ = first.release(&grant).await;
    let next = granted(second.acquire(&waiting).await);
    assert!(next.token > grant.token);
}

#[tokio::test]
async fn a_member_that_forgot_gets_its_vote_restored_after_its_quarantine() {
    let world = World::new(3);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    world.restart(1);
    let mut passed = Duration::ZERO;
    while passed < QUARANTINE {
        world.pass(TTL / 4).await;
        passed += TTL / 4;
        let renewed = store.renew(std::slice::from_ref(&grant)).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
        settle().await;
        let expected: &[usize] = if passed < QUARANTINE {
            &[0, 2]
        } else {
            &[0, 1, 2]
        };
        assert_eq!(world.keepers().await, expected, "after {passed:?}");
    }
    world.restart(0);
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    let record = store.inspect(&key()).await.unwrap().unwrap();
    assert_eq!(record.token, Some(grant.token));
}

#[tokio::test]
async fn a_renewal_that_meets_a_release_leaves_no_vote() {
    let world = World::new(3);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    for server in &world.members {
        server.network.stall(Operation::Renew);
    }
    let (renewed, released) = (store.clone(), store);
    let (renewal, hold) = (grant.clone(), grant);
    let renewing = tokio::spawn(async move { renewed.renew(&[renewal]).await });
    settle().await;
    world.members[1].network.stall(Operation::Release);
    world.members[2].network.stall(Operation::Release);
    let releasing = tokio::spawn(async move { released.release(&hold).await });
    settle().await;
    assert_eq!(world.keepers().await, [1, 2]);
    // The first member has released it and says so to the renewal, before a majority has released
    // it.
    for operation in [Operation::Renew, Operation::Release] {
        for server in &world.members {
            server.network.unblock(operation);
            settle().await;
        }
    }
    assert!(matches!(releasing.await.unwrap(), Released::Released));
    let _ = renewing.await.unwrap();
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_vote_that_is_restored_after_the_hold_is_over_is_taken_back() {
    let world = World::new(3);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    settle().await;
    world.pass(TTL / 2).await;
    let forgetful = &world.members[0];
    forgetful.data.restart(Duration::ZERO);
    forgetful.network.stall(Operation::Acquire);
    world.members[1].network.stall(Operation::Renew);
    world.members[2].network.stall(Operation::Renew);
    let _renewing = tokio::spawn(async move { store.renew(&[grant]).await });
    settle().await;
    assert_eq!(forgetful.network.counts(Operation::Acquire).stalled, 1);
    world.pass(TTL / 2).await;
    forgetful.network.unblock(Operation::Acquire);
    settle().await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_renewal_without_a_majority_of_all_members_is_a_lapse() {
    let world = World::new(5);
    let store = world.client();
    world.stop(4);
    world.stop(3);
    let grant = granted(store.acquire(&claim()).await);
    world.restart(0);
    world.restart(1);
    world.restart(2);
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    world.go_on(3);
    world.go_on(4);
    settle().await;
    assert_eq!(world.keepers().await, [3, 4], "these voted late");
    let released = store.release(&grant).await;
    assert!(matches!(released, Released::AlreadyGone), "{released:?}");
    settle().await;
    assert_eq!(
        world.keepers().await,
        [0; 0],
        "what is left is given back by a release"
    );
}

#[tokio::test]
async fn a_hold_that_ran_out_here_is_not_renewed_though_members_would() {
    let world = World::new(3);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    world.clock.advance(TTL);
    let renewed = store.renew(&[grant]).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
}

#[tokio::test]
async fn a_batch_is_not_held_up_by_one_doubtful_grant() {
    let world = World::new(3);
    let store = world.client();
    world.members[0].network.block(Operation::Acquire);
    let doubtful = granted(store.acquire(&claim()).await);
    world.members[0].network.unblock(Operation::Acquire);
    let mut other = claim();
    other.key = "other".parse().unwrap();
    let sound = granted(store.acquire(&other).await);
    settle().await;
    world.stop(1);
    let renewing = tokio::spawn(async move { store.renew(&[doubtful, sound]).await });
    settle().await;
    assert!(!renewing.is_finished(), "the stopped member might decide");
    world.pass(TTL / 30).await;
    let renewed = renewing.await.unwrap();
    assert!(
        matches!(renewed[..], [Renewed::Unknown(_), Renewed::Extended(_)]),
        "{renewed:?}"
    );
}

#[tokio::test]
async fn an_acquire_dropped_at_any_await_leaves_nothing() {
    for polls in 1..20 {
        let world = World::new(3);
        let store = world.client();
        let dropped = claim();
        let mut acquire = Box::pin(store.acquire(&dropped));
        let mut done = false;
        for _ in 0..polls {
            done = done || acquire.as_mut().now_or_never().is_some();
            if done {
                break;
            }
        }
        drop(acquire);
        if done {
            store.withdraw(&dropped).await.unwrap();
        }
        settle().await;
        assert_eq!(world.keepers().await, [0; 0], "after {polls} polls");
    }
}

#[tokio::test]
async fn members_that_cannot_be_reached_are_unavailable_not_busy() {
    let world = World::new(3);
    world.members[0].network.block(Operation::Acquire);
    world.members[1].network.block(Operation::Acquire);
    let error = world.client().acquire(&claim()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("members=3 need=2"), "{error}");
}
