//! What the manager concludes from its clocks.
use leasehold::Ended;
use leasehold::clock::ClockKind;

use crate::support::{World, secs};

#[tokio::test]
async fn a_machine_sleep_while_nothing_is_held_costs_no_later_lease() {
    let world = World::new();
    let before = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(5)).await;
    let _ = before.release().await;
    world.settled().await;
    // The machine sleeps: only the boot clock counts that.
    world.clock.advance_only(ClockKind::Boot, secs(3_600));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(20)).await;
    assert_eq!(guard.lease().lost_reason(), None);
}

#[tokio::test]
async fn a_clock_that_was_wrong_before_a_lock_was_asked_for_costs_none_but_the_older_lease() {
    let world = World::new();
    let older = world.ours.lock("a").acquire().await.unwrap();
    // The machine sleeps for less than a heartbeat: only the boot clock counts that.
    world.clock.advance_only(ClockKind::Boot, secs(1));
    let later = world.ours.lock("b").acquire().await.unwrap();
    world.pass(secs(20)).await;
    assert_eq!(older.lease().lost_reason(), Some(Ended::ClockFault));
    assert_eq!(later.lease().lost_reason(), None);
}
