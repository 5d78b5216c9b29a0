//! What operators do: take a lock away, look, and set a lock delay.

use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::{LockMode, MemoryStore, Released, Revoke, Revoked};
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{Ended, ErrorKind, LockManager, Settings};

use crate::plain::plain;
use crate::support::{Far, World, ms, poll_once, secs, while_time_passes};

#[tokio::test]
async fn a_lock_taken_by_force_is_entered_only_after_the_old_lease_ended() {
    let world = World::new();
    let before = leasehold::clock::Clock::from(world.clock.clone()).stamp();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let revoked = world.theirs.revoke("a", Revoke::AfterTtl).await;
    let Revoked::Revoked { free_in } = revoked.unwrap() else {
        panic!("somebody held it");
    };
    assert_eq!(free_in, secs(10));
    let record = world.theirs.inspect("a").await.unwrap().unwrap();
    assert_eq!((record.holders, record.label), (0, None));
    let lock = world.theirs.lock("a");
    let next = while_time_passes(&world, secs(11), lock.acquire()).await;
    assert!(next.unwrap().lease().is_live());
    assert!(!guard.lease().is_live());
    let now = leasehold::clock::Clock::from(world.clock.clone()).stamp();
    assert!(now.since(&before) >= secs(10));
}

#[tokio::test]
async fn a_holder_whose_lock_was_taken_by_force_hears_of_it_at_its_next_heartbeat() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let revoked = world.theirs.revoke("a", Revoke::AfterTtl).await;
    assert!(matches!(revoked, Ok(Revoked::Revoked { .. })));
    world.pass(secs(4)).await;
    assert_eq!(guard.lost().await, Ended::Gone);
    assert!(matches!(guard.release().await, Ok(Released::AlreadyGone)));
}

/// A manager of the world's store, which executes its requests and does not answer.
fn without_answers(world: &World) -> (Faulty<MemoryStore>, LockManager) {
    let network = Faulty::new(world.store.clone(), world.clock.clone(), 7);
    let locks = LockManager::builder(network.clone())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    let mut faults = Faults::default();
    faults.lost_after = 1.0;
    network.set(faults).unwrap();
    (network, locks)
}

/// The store granted, the answer was lost, and the lock was revoked before the claim asked again.
#[tokio::test]
async fn a_claim_that_was_revoked_before_its_caller_knew_of_its_grant_is_made_anew() {
    for how in [Revoke::AfterTtl, Revoke::Now] {
        for is_fair in [true, false] {
            let world = World::new();
            let (network, far) = without_answers(&world);
            let lock = far.lock("a");
            let lock = if is_fair { lock.fair() } else { lock };
            let mut acquire = Box::pin(lock.acquire_within(secs(30)));
            assert!(poll_once(&mut acquire).await.is_pending());
            let record = world.theirs.inspect("a").await.unwrap().unwrap();
            assert_eq!(record.holders, 1, "the request was executed");
            let revoked = world.theirs.revoke("a", how).await.unwrap();
            assert!(matches!(revoked, Revoked::Revoked { .. }));
            network.set(Faults::default()).unwrap();
            let next = while_time_passes(&world, secs(20), acquire).await;
            let next = next.unwrap().expect("the lock is free within the wait");
            assert!(next.lease().is_live(), "{how:?} fair={is_fair}");
        }
    }
}

/// The same, where nothing is left of the wait: the lock is busy, and the caller broke no rule.
#[tokio::test]
async fn a_claim_that_was_revoked_unseen_is_busy_when_its_wait_ends() {
    let world = World::new();
    let (network, far) = without_answers(&world);
    let lock = far.lock("a").fair();
    let mut acquire = Box::pin(lock.acquire_within(secs(5)));
    assert!(poll_once(&mut acquire).await.is_pending());
    let revoked = world.theirs.revoke("a", Revoke::AfterTtl).await.unwrap();
    assert!(matches!(revoked, Revoked::Revoked { .. }));
    network.set(Faults::default()).unwrap();
    let waited = while_time_passes(&world, secs(6), acquire).await;
    assert!(waited.unwrap().is_none());
}

#[tokio::test]
async fn a_lock_taken_now_is_free_while_the_old_lease_is_still_live() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let revoked = world.theirs.revoke("a", Revoke::Now).await.unwrap();
    let free_in = ms(0);
    assert_eq!(revoked, Revoked::Revoked { free_in });
    let next = world.theirs.lock("a").try_acquire().await.unwrap().unwrap();
    // This is what `Now` says: two may act, and only the token distinguishes them.
    assert!(guard.lease().is_live() && next.lease().is_live());
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn a_lock_that_nobody_holds_is_not_taken() {
    let world = World::new();
    let revoked = world.ours.revoke("a", Revoke::AfterTtl).await;
    assert_eq!(revoked.unwrap(), Revoked::NotHeld);
    assert!(world.ours.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_store_that_takes_nothing_away_refuses_and_says_which_does() {
    let clock = ManualClock::new();
    let store = plain(MemoryStore::with_clock(clock.clone()));
    let locks = LockManager::builder(store).clock(clock).build().unwrap();
    let refused = locks.revoke("a", Revoke::Now).await.unwrap_err();
    let downgrade = locks.read_write("a").read().await.unwrap_err();
    for error in [refused, downgrade] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("MemoryStore"), "{error}");
    }
}

#[tokio::test]
async fn the_lock_info_reports_mode_holders_and_queue() {
    let world = World::new();
    let _one = world.ours.read_write("a").read().await.unwrap();
    let _other = world.theirs.read_write("a").read().await.unwrap();
    let record = world.ours.inspect("a").await.unwrap().unwrap();
    let reported = (record.mode, record.holders, record.queue);
    assert_eq!(reported, (Some(LockMode::Read), 2, Some(0)));
}

fn with_delay(delay: std::time::Duration) -> World {
    let mut settings = Settings::default();
    settings.lock_delay = delay;
    settings.handoff_count = 0;
    World::with(settings)
}

#[tokio::test]
async fn after_an_end_that_was_no_release_the_next_holder_waits_for_the_lock_delay() {
    let world = with_delay(secs(5));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    // The machine slept: no heartbeat in between. The manager finds the lease lapsed, and does not
    // release the lock.
    world.clock.advance(secs(10));
    assert!(!guard.lease().is_live());
    let released = guard.release().await.unwrap();
    assert!(matches!(released, Released::Withheld { .. }));
    assert_eq!(
        released.to_string(),
        "not released, its ttl ends it: it lapsed, and its lock delay keeps the next holder out"
    );
    world.settled().await;
    let lock = world.theirs.lock("a");
    let mut waited = secs(0);
    while lock.try_acquire().await.unwrap().is_none() {
        world.clock.advance(ms(100));
        waited += ms(100);
        assert!(waited <= secs(5), "the delay is over");
    }
    assert_eq!(waited, secs(5));
}

#[tokio::test]
async fn a_lock_may_have_a_lock_delay_and_a_longest_hold_of_its_own() {
    let world = World::new();
    let lock = world.ours.lock("a").lock_delay(secs(5)).max_hold(secs(20));
    let guard = lock.acquire().await.unwrap();
    let plain = world.ours.lock("b").acquire().await.unwrap();
    world.pass(secs(19)).await;
    assert!(guard.lease().is_live());
    world.pass(secs(2)).await;
    assert_eq!(guard.lease().lost_reason(), Some(Ended::MaxHold));
    assert!(plain.lease().is_live());
    for refused in [
        world.ours.lock("a").lock_delay(secs(25)),
        world.ours.lock("a").max_hold(secs(1)),
    ] {
        let error = refused.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn a_hold_is_not_handed_off_to_a_caller_with_another_lock_delay() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let careful = world.ours.lock("a").lock_delay(secs(5));
    let mut waiting = Box::pin(careful.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let token = guard.token();
    let _ = guard.release().await;
    let next = while_time_passes(&world, secs(3), waiting).await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn after_a_release_nobody_waits_for_the_lock_delay() {
    let world = with_delay(secs(5));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let _ = guard.release().await;
    assert!(world.is_theirs_to_take("a").await);
}

#[tokio::test]
async fn nor_after_a_release_that_was_dropped_half_way() {
    let mut settings = Settings::default();
    settings.lock_delay = secs(5);
    let far = Far::with(settings);
    let guard = far.locks.lock("a").acquire().await.unwrap();
    far.network.stall(Operation::Release);
    let mut release = Box::pin(guard.release());
    assert!(poll_once(&mut release).await.is_pending());
    drop(release);
    far.network.unblock(Operation::Release);
    far.locks.settled().await;
    assert!(far.is_free("a").await);
}

#[tokio::test]
async fn a_lock_delay_does_not_shorten_a_renewed_hold() {
    let world = with_delay(secs(5));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(60)).await;
    assert!(guard.remaining() > secs(5));
    assert!(guard.remaining() < secs(10));
}

#[tokio::test]
async fn a_manager_that_was_shut_down_takes_no_lock_away() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.theirs.shutdown().await;
    let revoked = world.theirs.revoke("a", Revoke::Now).await;
    assert_eq!(revoked.unwrap_err().kind(), ErrorKind::Closed);
    world.pass(secs(20)).await;
    assert!(guard.lease().is_live());
}

#[tokio::test]
async fn whoever_does_not_wait_learns_who_holds_and_for_how_long_and_how_many_wait() {
    let mut settings = Settings::default();
    settings.wait = Duration::ZERO;
    let label = leasehold::store::Label::parse("web-3:4502").unwrap();
    let world = World::built(settings, |builder| builder.label(label));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(12)).await;
    let first = world.theirs.lock("a");
    let mut waiting = Box::pin(first.acquire_within(secs(45)));
    assert!(poll_once(&mut waiting).await.is_pending());
    let error = world.theirs.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    let text = error.to_string();
    let expected = "key=a; held by web-3:4502 for 12.0 s, ";
    assert!(text.contains(expected), "{text}");
    let expected = " s left unless it is renewed, 1 waits in the store's queue; try later";
    assert!(text.contains(expected), "{text}");
    assert_eq!(error.retry_after(), None);

    let info = world.theirs.inspect("a").await.unwrap().unwrap();
    assert_eq!(info.held_for, Some(secs(12)));
    drop(waiting);
    world.settled().await;
    guard.release().await.unwrap();
    let guard = world.theirs.lock("a").acquire().await.unwrap();
    let info = world.ours.inspect("a").await.unwrap().unwrap();
    assert_eq!(info.held_for, Some(Duration::ZERO));
    drop(guard);
}

#[tokio::test]
async fn a_caller_that_waited_in_vain_does_not_count_itself() {
    let world = World::new();
    let _guard = world.ours.lock("a").acquire().await.unwrap();
    let lock = world.theirs.lock("a").fair();
    let wait = world.theirs.settings().wait;
    let alone = while_time_passes(&world, wait + secs(1), lock.acquire()).await;
    let text = alone.unwrap_err().to_string();
    assert!(text.contains(" s left unless it is renewed; try"), "{text}");
}
