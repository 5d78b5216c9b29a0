//! A hold in doubt stays with the members for its whole time, also if its manager ends earlier
//! (I5).

use leasehold::{LockManager, Settings};

use crate::in_doubt::end_in_doubt;
use crate::world::{TTL, World, settle};

#[tokio::test]
async fn a_hold_in_doubt_keeps_its_votes_after_the_end_of_its_manager() {
    for is_shut_down in [true, false] {
        let world = World::new(3);
        let mut settings = Settings::default();
        settings.ttl = TTL;
        settings.max_ttl = TTL;
        let locks = LockManager::builder(world.client())
            .clock(world.clock.clone())
            .settings(settings)
            .on_current_runtime()
            .build()
            .unwrap();
        let guard = locks.lock("key").acquire().await.unwrap();
        end_in_doubt(guard).await;
        if is_shut_down {
            locks.shutdown().await;
        }
        drop(locks);
        settle().await;
        world.pass(TTL * 9 / 10).await;
        assert_eq!(world.keepers().await, [0, 1, 2]);
        world.pass(TTL / 5).await;
        assert_eq!(world.keepers().await, [0; 0]);
    }
}
