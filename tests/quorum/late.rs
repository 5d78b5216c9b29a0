//! Requests of one claim that overlap, and answers that come late: no vote is left behind, and no
//! hold is taken twice.

use std::time::Duration;

use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::testing::Operation;

use crate::world::{HeldUp, TTL, World, claim, granted, settle};

#[tokio::test]
async fn a_claim_that_is_asked_again_while_an_attempt_pauses_keeps_its_hold() {
    let world = World::new(3);
    let other = claim();
    let others = granted(world.members[0].data.acquire(&other).await);
    world.members[2].network.block(Operation::Acquire);
    let (store, claim) = (world.client(), claim());
    let asking = (store.clone(), claim.clone());
    let first = tokio::spawn(async move { asking.0.acquire(&asking.1).await });
    settle().await;
    assert!(!first.is_finished(), "the votes are split: it pauses");

    let _ = world.members[0].data.release(&others).await;
    world.members[2].network.unblock(Operation::Acquire);
    let hold = granted(store.acquire(&claim).await);
    settle().await;
    let given_back = |world: &World| {
        let asked = |operation| {
            let counts = world.members.iter().map(|m| m.network.counts(operation));
            counts.map(|counts| counts.asked).sum::<u64>()
        };
        asked(Operation::Release) + asked(Operation::Withdraw)
    };
    let before = given_back(&world);
    world.pass(Duration::from_millis(100)).await;
    let again = granted(first.await.unwrap());
    assert_eq!(again.token, hold.token, "one claim, one grant");
    assert_eq!(
        given_back(&world),
        before,
        "its votes were never given back"
    );
}

#[tokio::test]
async fn a_vote_that_arrives_after_a_restored_one_was_refused_is_given_back() {
    let world = World::new(3);
    let go = world.hold_up(2, HeldUp::Request);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    let others = granted(world.members[2].data.acquire(&claim()).await);
    // The member says that it has no vote of ours, and then that it may not have one.
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    settle().await;
    let _ = world.members[2].data.release(&others).await;
    go.send(()).unwrap();
    settle().await;
    assert_eq!(world.keepers().await, [0, 1, 2], "a late vote joins");
    assert!(matches!(store.release(&grant).await, Released::Released));
    settle().await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_vote_that_arrives_after_the_restored_one_was_released_is_refused() {
    let world = World::new(3);
    let go = world.hold_up(2, HeldUp::Request);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    settle().await;
    assert_eq!(
        world.keepers().await,
        [0, 1, 2],
        "the second request overtook the first"
    );
    assert!(matches!(store.release(&grant).await, Released::Released));
    settle().await;
    go.send(()).unwrap();
    settle().await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_restored_vote_is_given_back_although_an_older_refusal_arrives_after_it() {
    let world = World::new(3);
    let others = granted(world.members[2].data.acquire(&claim()).await);
    let go = world.hold_up(2, HeldUp::Answer);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    let _ = world.members[2].data.release(&others).await;
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    settle().await;
    assert_eq!(world.keepers().await, [0, 1, 2], "the vote is restored");
    go.send(()).unwrap();
    settle().await;
    assert!(matches!(store.release(&grant).await, Released::Released));
    settle().await;
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_renewal_that_is_answered_after_the_hold_ran_out_here_does_not_revive_it() {
    let world = World::new(3);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    settle().await;
    for member in &world.members {
        member.network.stall(Operation::Renew);
    }
    let (renewing, late) = (store.clone(), grant.clone());
    let renewal = tokio::spawn(async move { renewing.renew(&[late]).await });
    settle().await;
    world.clock.advance(TTL);
    for member in &world.members {
        member.network.unblock(Operation::Renew);
    }
    let renewed = renewal.await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    let renewed = store.renew(&[grant]).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
}

#[tokio::test]
async fn a_member_in_quarantine_is_asked_for_one_vote_of_a_batch() {
    let world = World::new(3);
    let store = world.client();
    let mut grants = Vec::new();
    for number in 0..20 {
        let mut claim = claim();
        claim.key = format!("key-{number}").parse().unwrap();
        grants.push(granted(store.acquire(&claim).await));
    }
    settle().await;
    world.restart(0);
    let votes = || world.members[0].network.counts(Operation::Acquire).asked;
    let before = votes();
    let renewed = store.renew(&grants).await;
    assert!(renewed.iter().all(|r| matches!(r, Renewed::Extended(_))));
    settle().await;
    assert_eq!(votes() - before, 1, "it said that it votes for nobody");
}

#[tokio::test]
async fn a_claim_asks_anew_once_its_hold_is_over() {
    let world = World::new(3);
    let (store, claim) = (world.client(), claim());
    let first = granted(store.acquire(&claim).await);
    world.pass(TTL).await;
    let second = granted(store.acquire(&claim).await);
    assert!(second.token > first.token);
    for server in &world.members {
        let _ = server.data.release(&first).await;
        server.data.forget();
    }
    let lost = store.acquire(&claim).await;
    assert!(matches!(lost, Ok(Acquired::Busy { .. })), "{lost:?}");
    world.pass(TTL).await;
    let third = granted(store.acquire(&claim).await);
    assert!(third.token > second.token);
}

#[tokio::test]
async fn what_is_left_of_a_lost_majority_keeps_the_others_out_as_long_as_the_lease_may_last() {
    for asks_again in [false, true] {
        let world = World::new(3);
        world.members[2].network.block(Operation::Acquire);
        let (store, claim) = (world.client(), claim());
        let grant = granted(store.acquire(&claim).await);
        settle().await;
        world.members[2].network.unblock(Operation::Acquire);
        // One member forgets its vote and votes for nobody; the third has voted for nobody yet.
        world.restart(1);
        if asks_again {
            let lost = store.acquire(&claim).await;
            assert!(matches!(lost, Ok(Acquired::Busy { .. })), "{lost:?}");
        } else {
            let renewed = store.renew(&[grant]).await;
            assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
        }
        settle().await;
        let (others, next) = (world.client(), crate::world::claim());
        let asking = (others.clone(), next.clone());
        let asking = tokio::spawn(async move { asking.0.acquire(&asking.1).await });
        // It pauses between its attempts, for less than a tenth of the lease in all.
        for _ in 0..100 {
            settle().await;
            world.pass(TTL / 1_000).await;
        }
        let refused = asking.await.unwrap();
        assert!(!matches!(refused, Ok(Acquired::Granted(_))), "{refused:?}");
        settle().await;
        world.pass(TTL).await;
        let _next = granted(others.acquire(&next).await);
    }
}
