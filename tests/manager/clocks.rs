//! What the manager concludes from its clocks.
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
