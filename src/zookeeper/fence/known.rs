//! What a fence knows of its keys.

use std::time::Duration;

use super::once_races::{FENCE, World, at_once, key, raise, token, yields};
use crate::fence::Fence;
use crate::model::key::Key;

#[tokio::test]
async fn a_fence_that_an_operator_deleted_is_raised_anew() {
    let world = World::new().await;
    let fence = world.fence();
    at_once(raise(&fence, 9)).await.expect("the first");
    let older = at_once(raise(&fence, 3)).await.expect_err("an older one");
    assert!(older.to_string().contains("deleteall /k/~fence"), "{older}");
    world.tree.delete(FENCE);
    at_once(raise(&fence, 3))
        .await
        .expect("it has seen nothing");
}

#[tokio::test]
async fn keys_that_nobody_uses_any_more_are_forgotten() {
    const KEYS: usize = 200;
    const HOURS: usize = 20;
    let world = World::new().await;
    let fence = world.fence();
    for round in 0..HOURS {
        for number in 0..KEYS {
            let key = Key::parse(&format!("k{round}/{number}")).expect("a key");
            let raised = at_once(fence.raise(&key, token(1))).await;
            raised.expect("the first");
        }
        world.manual.advance(Duration::from_secs(60 * 60 + 1));
        yields().await;
    }
    let known = fence
        .raised
        .lock()
        .len()
        .max(fence.next_sweeps.lock().len());
    assert!(known < HOURS * KEYS / 2, "{known}");
    at_once(fence.raise(&key(), token(1)))
        .await
        .expect("as ever");
}
