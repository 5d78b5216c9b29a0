//! Members whose clocks are off.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::quorum::MAX_SKEW;
use leasehold::store::{Acquired, Released, Store};
use leasehold::testing::Operation;

use crate::world::{Sabotage, TTL, World, claim, granted, settle};

const FAR: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_member_whose_clock_is_off_does_not_count() {
    for offsets in [
        [FAR, Duration::ZERO, Duration::ZERO],
        [Duration::ZERO, FAR, FAR],
    ] {
        let world = World::with(&offsets, 0, Sabotage::Nothing);
        let store = world.client();
        let grant = granted(store.acquire(&claim()).await);
        settle().await;
        // Without one of the two that agree, the third is no help.
        let _ = store.release(&grant).await;
        settle().await;
        world.stop(1);
        let acquire = tokio::spawn(async move { store.acquire(&claim()).await });
        settle().await;
        world.pass(Duration::from_secs(1)).await;
        let error = acquire.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{offsets:?}");
    }
}

#[tokio::test]
async fn a_fast_clock_does_not_raise_the_tokens_of_the_others() {
    let world = World::with(&[FAR, Duration::ZERO, Duration::ZERO], 0, Sabotage::Nothing);
    let store = world.client();
    let fast = granted(world.members[0].data.acquire(&claim()).await);
    assert!(matches!(
        world.members[0].data.release(&fast).await,
        Released::Released
    ));
    for _ in 0..20 {
        let grant = granted(store.acquire(&claim()).await);
        assert!(grant.token < fast.token);
        let _ = store.release(&grant).await;
        world.pass(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn tokens_grow_from_majority_to_majority_of_clocks_within_the_skew() {
    let skew = MAX_SKEW / 3;
    let world = World::with(&[2 * skew, skew, Duration::ZERO], 0, Sabotage::Nothing);
    let mut last = None;
    for round in 0..30 {
        let away = round % 3;
        world.stop(away);
        let store = world.client();
        let claim = claim();
        let acquired = store.acquire(&claim).await;
        let Ok(Acquired::Granted(grant)) = acquired else {
            panic!("two of three are there: {acquired:?}");
        };
        assert!(Some(grant.token) > last, "round {round}");
        last = Some(grant.token);
        assert!(matches!(store.release(&grant).await, Released::Released));
        world.go_on(away);
        world.pass(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn once_the_clocks_are_known_no_second_round_is_needed() {
    let skew = MAX_SKEW / 3;
    let world = World::with(&[2 * skew, skew, Duration::ZERO], 0, Sabotage::Nothing);
    let store = world.client();
    let raises = || {
        world
            .members
            .iter()
            .map(|m| m.network.counts(Operation::Raise).asked)
            .sum::<u64>()
    };
    let mut first = None;
    for _ in 0..50 {
        let grant = granted(store.acquire(&claim()).await);
        let _ = store.release(&grant).await;
        settle().await;
        first.get_or_insert_with(raises);
        world.pass(Duration::from_millis(7)).await;
    }
    assert!(first > Some(0), "the first time the tokens differ");
    assert_eq!(Some(raises()), first);
}

#[tokio::test]
async fn the_second_round_takes_as_long_as_the_members_need() {
    for refuses in [false, true] {
        let offsets = [MAX_SKEW / 3, Duration::ZERO, Duration::ZERO];
        let world = World::with(&offsets, 0, Sabotage::Nothing);
        if refuses {
            world.members[2].network.block(Operation::Acquire);
        } else {
            world.stop(2);
        }
        let behind = &world.members[1].network;
        behind.stall(Operation::Raise);
        let store = world.client();
        let acquire = tokio::spawn(async move { store.acquire(&claim()).await });
        settle().await;
        assert_eq!(behind.counts(Operation::Raise).stalled, 1);
        world.pass(TTL / 4).await;
        behind.unblock(Operation::Raise);
        let _grant = granted(acquire.await.unwrap());
    }
}
