//! A crowd on one key of a quorum: everybody is served, and each costs the members a few requests.

use std::time::Duration;

use leasehold::testing::Operation;
use leasehold::{LockManager, Settings};
use tokio::task::JoinSet;

use crate::world::{Server, TTL, World, settle};

/// How many requests the members had.
fn asked(world: &World) -> u64 {
    let asked = |member: &Server| -> u64 {
        let counts = Operation::ALL.map(|operation| member.network.counts(operation).asked);
        counts.iter().sum()
    };
    world.members.iter().map(asked).sum()
}

/// What a crowd of four managers asks the members for, from when its first holder leaves.
async fn cost(crowd: usize, handoff_count: u32) -> u64 {
    let world = World::new(3);
    let mut settings = Settings::default();
    (settings.ttl, settings.max_ttl) = (TTL, TTL);
    settings.handoff_count = handoff_count;
    let managers: Vec<_> = (0..4)
        .map(|_| {
            let builder = LockManager::builder(world.client()).clock(world.clock.clone());
            builder.settings(settings.clone()).build().unwrap()
        })
        .collect();
    let first = managers[0].lock("a").acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..crowd {
        let locks = managers[number % 4].clone();
        waiting.spawn(async move {
            let guard = locks.lock("a").acquire().await.unwrap();
            guard.release().await.unwrap();
        });
    }
    settle().await;
    let before = asked(&world);
    first.release().await.unwrap();
    // Two that each got a member ask again later.
    while !waiting.is_empty() {
        while let Some(served) = waiting.try_join_next() {
            served.unwrap();
        }
        world.pass(Duration::from_millis(1)).await;
    }
    asked(&world) - before
}

#[tokio::test]
async fn all_of_a_crowd_are_served_for_a_few_requests_each() {
    for crowd in [100, 1_000] {
        // A vote and a release at each of three members, and what the four managers lose to each
        // other.
        let asked = cost(crowd, 0).await;
        assert!(asked <= 8 * crowd as u64 + 100, "{crowd}: {asked}");
        let asked = cost(crowd, Settings::default().handoff_count).await;
        assert!(
            asked <= crowd as u64 + 100,
            "{crowd} with handoffs: {asked}"
        );
    }
}
