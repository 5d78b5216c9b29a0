//! The life of a hold: renewed, lost, handed on, ended.
use crate::support::{Far, World, held_and_waited_for, ms, no_handoff, poll_once, secs};
use leasehold::clock::ClockKind;
use leasehold::store::Released;
use leasehold::testing::Operation;
use leasehold::{Ended, ErrorKind, Settings};

/// The settings with one of them changed.
fn with(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

#[tokio::test]
async fn heartbeats_keep_a_hold_over_many_ttls() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let token = guard.token();
    world.pass(secs(120)).await;
    assert!(guard.remaining() > secs(5));
    assert_eq!(guard.token(), token);
    assert!(!guard.lease().is_at_risk());
}

#[tokio::test]
async fn a_lease_is_renewed_in_time_however_little_of_its_ttl_may_be_used() {
    let world = World::with(with(|settings| settings.margin = secs(7)));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    assert!(guard.remaining() < secs(3));
    world.pass(secs(20)).await;
    assert!(guard.lease().is_live());
}

#[tokio::test]
async fn a_short_lease_has_time_for_a_second_try() {
    for ttl in [200, 500, 800, 1_000, 2_000] {
        let far = Far::with(with(|settings| settings.ttl = ms(ttl)));
        let Far {
            clock,
            network,
            locks,
        } = &far;
        let guard = locks.lock("a").acquire().await.unwrap();
        // The first try is never answered; from the second on the store is well.
        network.stall(Operation::Renew);
        while network.counts(Operation::Renew).asked < 2 {
            clock.advance(ms(1));
            locks.settled().await;
            assert!(guard.lease().is_live(), "one try in a ttl of {ttl} ms");
        }
        network.unblock(Operation::Renew);
        for _ in 0..2 * ttl {
            clock.advance(ms(1));
            locks.settled().await;
        }
        assert!(guard.lease().is_live(), "{ttl} ms");
    }
}

#[tokio::test]
async fn a_lease_that_nobody_renewed_in_time_is_lost_for_good() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    // The manager's thread slept through it: no step in between.
    world.clock.advance(secs(10));
    assert!(!guard.lease().is_live());
    world.settled().await;
    assert_eq!(guard.lost().await, Ended::Lapsed);
    assert!(world.ours.held().is_empty());
    assert!(world.is_theirs_to_take("a").await);
}

#[tokio::test]
async fn a_late_renewal_does_not_revive_a_lapsed_hold() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    // Past the lease, but not past the ttl: the store would still extend it.
    world.clock.advance(ms(9_500));
    assert_eq!(guard.lease().remaining(), ms(0));
    world.settled().await;
    world.pass(secs(1)).await;
    assert!(!guard.lease().is_live());
}

#[tokio::test]
async fn a_lock_that_the_store_lost_is_lost_at_the_next_heartbeat() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.store.forget();
    world.pass(secs(4)).await;
    assert_eq!(guard.lease().lost_reason(), Some(Ended::Gone));
    assert!(matches!(guard.release().await, Ok(Released::AlreadyGone)));
}

#[tokio::test]
async fn a_dropped_guard_is_released_in_the_background() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let lease = guard.lease().clone();
    drop(guard);
    world.settled().await;
    assert!(world.is_free("a").await);
    assert_eq!(lease.lost_reason(), Some(Ended::Dropped));
}

#[tokio::test]
async fn a_hold_is_handed_off_with_its_token_and_under_a_new_lease() {
    let world = World::new();
    let first = world.ours.lock("a").acquire().await.unwrap();
    let (token, lease) = (first.token(), first.lease().clone());
    let lock = world.ours.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());
    let _ = first.release().await;
    let second = waiting.await.unwrap();
    assert_eq!(second.token(), token);
    assert!(second.lease().is_live() && !lease.is_live());
    world.pass(secs(60)).await;
    assert!(second.lease().is_live(), "what was handed on is renewed");
    assert_eq!(world.ours.held().len(), 1);
    let _ = second.release().await;
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn handoff_is_bounded_in_number_so_that_others_get_their_turn() {
    let world = World::with(with(|settings| settings.handoff_count = 2));
    assert_eq!(tokens_in_a_row(&world, 7).await, [3, 3, 1]);
}

#[tokio::test]
async fn handoff_can_be_switched_off() {
    let world = World::with(no_handoff());
    assert_eq!(tokens_in_a_row(&world, 3).await, [1, 1, 1]);
}

/// How many of `callers`, one after the other, shared each token.
async fn tokens_in_a_row(world: &World, callers: usize) -> Vec<usize> {
    let lock = world.ours.lock("a");
    let mut waiting: Vec<_> = (0..callers).map(|_| Box::pin(lock.acquire())).collect();
    let mut first = None;
    for place in &mut waiting {
        if let std::task::Poll::Ready(guard) = poll_once(place).await {
            first = Some(guard.unwrap());
        }
    }
    let mut tokens = vec![first.as_ref().unwrap().token()];
    let _ = first.unwrap().release().await;
    for place in waiting.into_iter().skip(1) {
        let guard = place.await.unwrap();
        tokens.push(guard.token());
        let _ = guard.release().await;
    }
    tokens.chunk_by(|a, b| a == b).map(<[_]>::len).collect()
}

#[tokio::test]
async fn handoff_is_bounded_in_time() {
    let world = World::new();
    let (first, waiting) = held_and_waited_for(&world.ours).await;
    let token = first.token();
    world.pass(ms(200)).await;
    let _ = first.release().await;
    assert!(waiting.await.unwrap().token() > token);
}

#[tokio::test]
async fn what_goes_on_after_many_ttls_counts_from_the_newest_proof() {
    let world = World::with(with(|settings| settings.handoff_time = secs(60)));
    let first = world.ours.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let mut waiting = Box::pin(lock.acquire_within(secs(60)));
    assert!(poll_once(&mut waiting).await.is_pending());
    world.pass(secs(35)).await;
    let token = first.token();
    let _ = first.release().await;
    let handoffs = waiting.await.unwrap().expect("handed off");
    assert_eq!(handoffs.token(), token);
    world.pass(secs(35)).await;
    assert!(handoffs.lease().is_live());
    let theirs = world.theirs.lock("a").try_acquire().await.unwrap();
    assert!(theirs.is_none());
}

#[tokio::test]
async fn a_hold_that_is_handed_off_while_it_is_renewed_is_renewed_again() {
    let far = Far::with(with(|settings| settings.handoff_time = secs(60)));
    let Far {
        clock,
        network,
        locks,
    } = &far;
    let (first, waiting) = held_and_waited_for(locks).await;
    // Its answer never comes.
    network.stall(Operation::Renew);
    while network.counts(Operation::Renew).asked == 0 {
        clock.advance(ms(100));
        locks.settled().await;
    }
    let _ = first.release().await;
    let next = waiting.await.unwrap();
    network.unblock(Operation::Renew);
    far.pass(secs(20)).await;
    assert!(next.lease().is_live());
}

#[tokio::test]
async fn a_hold_that_is_handed_off_while_its_renewals_fail_is_at_risk() {
    let far = Far::with(with(|settings| settings.handoff_time = secs(60)));
    let Far {
        clock,
        network,
        locks,
    } = &far;
    let (first, waiting) = held_and_waited_for(locks).await;
    network.block(Operation::Renew);
    while !first.lease().is_at_risk() {
        clock.advance(ms(100));
        locks.settled().await;
    }
    let token = first.token();
    let _ = first.release().await;
    let next = waiting.await.unwrap();
    assert_eq!(next.token(), token);
    assert!(next.lease().is_at_risk() && next.lease().is_live());
    network.unblock(Operation::Renew);
    far.pass(secs(4)).await;
    assert!(!next.lease().is_at_risk() && next.lease().is_live());
}

#[tokio::test]
async fn a_dropped_guard_is_never_handed_off() {
    let world = World::new();
    let (first, waiting) = held_and_waited_for(&world.ours).await;
    let token = first.token();
    drop(first);
    assert!(waiting.await.unwrap().token() > token);
}

#[tokio::test]
async fn a_lapsed_hold_is_never_handed_off() {
    let world = World::new();
    let (first, waiting) = held_and_waited_for(&world.ours).await;
    let token = first.token();
    world.clock.advance(secs(11));
    let _ = first.release().await;
    assert!(waiting.await.unwrap().token() > token);
}

#[tokio::test]
async fn a_hold_that_was_handed_to_a_caller_who_left_is_released() {
    let world = World::new();
    let (first, waiting) = held_and_waited_for(&world.ours).await;
    let _ = first.release().await;
    // It was handed on, and is dropped before it looked.
    drop(waiting);
    world.settled().await;
    assert!(world.is_free("a").await);
    assert!(world.ours.held().is_empty());
}

#[tokio::test]
async fn max_hold_ends_a_hold_however_well_it_is_renewed() {
    let world = World::with(with(|settings| settings.max_hold = Some(secs(25))));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(24)).await;
    assert!(guard.lease().is_live());
    world.pass(secs(2)).await;
    assert_eq!(guard.lease().lost_reason(), Some(Ended::MaxHold));
    assert!(
        world.is_free("a").await,
        "what is lost and drained is released"
    );
}

#[tokio::test]
async fn clocks_that_disagree_between_two_heartbeats_end_every_lease() {
    let world = World::new();
    let first = world.ours.lock("a").acquire().await.unwrap();
    let second = world.ours.lock("b").acquire().await.unwrap();
    world.clock.advance_only(ClockKind::Raw, secs(1));
    world.pass(secs(4)).await;
    for guard in [&first, &second] {
        assert_eq!(guard.lease().lost_reason(), Some(Ended::ClockFault));
    }
}

#[tokio::test]
async fn a_slow_fast_clock_is_not_read_any_more() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    // The strict clocks run; the fast one stands still.
    for _ in 0..40 {
        world.clock.advance_only(ClockKind::Boot, ms(100));
        world.clock.advance_only(ClockKind::Raw, ms(100));
        world.settled().await;
    }
    assert!(guard.lease().is_live(), "renewals went on");
    world.clock.advance_only(ClockKind::Boot, secs(10));
    world.clock.advance_only(ClockKind::Raw, secs(10));
    assert!(
        !guard.lease().is_live(),
        "a fast look reads the boot clock now"
    );
}

#[tokio::test]
async fn shutdown_releases_everything_and_ends_every_lease() {
    let world = World::new();
    let guards = [
        world.ours.lock("a").acquire().await.unwrap(),
        world.ours.lock("b").acquire().await.unwrap(),
    ];
    let lock = world.ours.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(&mut waiting).await.is_pending());

    world.ours.shutdown().await;
    assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(world.theirs.list("").await.unwrap().is_empty());
    for guard in guards {
        assert_eq!(guard.lease().lost_reason(), Some(Ended::Closed));
        let error = guard.lease().ensure(ms(1)).unwrap_err();
        assert!(error.to_string().contains("shut down"), "{error}");
        assert!(
            matches!(guard.release().await, Ok(Released::Released)),
            "the one end's one answer"
        );
    }
    let error = world.ours.lock("c").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(
        world.theirs.list("").await.unwrap().is_empty(),
        "a refused acquire leaves nothing"
    );
    world.ours.shutdown().await;
}

#[tokio::test]
async fn what_is_held_can_be_seen() {
    let world = World::new();
    let b = world.ours.lock("b").acquire().await.unwrap();
    let _a = world.ours.lock("a").acquire().await.unwrap();
    let held = world.ours.held();
    assert_eq!(
        held.iter()
            .map(|held| held.key.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(held[1].token, b.token());
    assert!(held[1].remaining > secs(9) && !held[1].is_at_risk);
    assert_eq!(world.ours.health().held, 2);
    let record = world.theirs.inspect("b").await.unwrap().unwrap();
    assert_eq!(record.token, Some(b.token()));
    assert!(record.label.is_some());
    assert_eq!(world.theirs.list("").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_starved_manager_reports_how_late_it_was() {
    let world = World::new();
    let _guard = world.ours.lock("a").acquire().await.unwrap();
    world.settled().await;
    assert_eq!(world.ours.health().worst_timer_lag, ms(0));
    world.clock.advance(secs(8));
    world.settled().await;
    assert!(world.ours.health().worst_timer_lag >= secs(4));
}

#[tokio::test]
async fn what_people_print_of_a_manager_fits_on_a_screen() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    for text in [
        format!("{:?}", world.ours),
        format!("{:?}", world.ours.lock("a")),
        format!("{guard:?}"),
    ] {
        assert!(text.len() < 500, "{text}");
    }
}
